// Runs a WebAssembly program of the WASI target, tests above all, as `test-wasm.sh` has cargo do: node wasi.mjs PROGRAM ARGUMENTS
import { readFile } from "node:fs/promises";
import { setFlagsFromString } from "node:v8";
import { argv, cwd, env, exit, versions } from "node:process";
import { WASI } from "node:wasi";

// Until 11.4 the engine had relaxed SIMD behind a switch.
const [major, minor] = versions.v8.split(".").map(Number);
if (major < 11 || (major === 11 && minor < 4)) setFlagsFromString("--experimental-wasm-relaxed-simd");

const [, , program, ...args] = argv;
const wasi = new WASI({ version: "preview1", args: [program, ...args], env: { ...env, PWD: cwd() }, preopens: { "/": "/" } });
const module = await WebAssembly.compile(await readFile(program));
exit(wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject())));
