// Writes test/engine/golden.json: what the native command answers. `node scripts/golden.js ../target/release/selkie`

import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const [command] = process.argv.slice(2);
if (!command) throw new Error('node scripts/golden.js PATH_OF_SELKIE');
const fixtures = fileURLToPath(new URL('../../fixtures/', import.meta.url));
const ids = [5, 77, 130, 9, 201, 33, 64, 12];
const options = ['-n', '24', '--temperature', '0', '--backend', 'cpu', '--exact', '--ignore-eos', '--json'];
const models = ['llama-gqa/model.gguf', 'llama-gqa/model-q8_0.gguf', 'llama-gqa/model-q4_0.gguf', 'mamba2-g1/model-q8_0.gguf', 'falcon-h1/model.gguf'];

const golden = models.map(model => {
  const answer = JSON.parse(execFileSync(command, ['generate', `${fixtures}hf/${model}`, '--ids', ids.join(','), ...options], { encoding: 'utf8' }));
  return { model: `hf/${model}`, prompt: ids, ids: answer.ids, text: answer.text };
});
writeFileSync(fileURLToPath(new URL('../test/engine/golden.json', import.meta.url)), `${JSON.stringify(golden, null, 1)}\n`);
