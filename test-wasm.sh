#!/usr/bin/env bash
# The CPU kernels in WebAssembly, as browsers run them: every test of them in node, with SIMD128 and with relaxed SIMD.
set -euo pipefail
cd "$(dirname "$0")"

rustup target add wasm32-wasip1 2>/dev/null
export CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings $PWD/crates/selkie-cpu/wasi.mjs"
for features in +simd128 +simd128,+relaxed-simd; do
  # Not captured: a panic ends the program, and with it what was captured.
  CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS="-C target-feature=$features" cargo test -p selkie-cpu --target wasm32-wasip1 \
    --test products --test vector --test attention --test recurrent -- --no-capture "$@"
done
