import type { Hybrid, Model } from './engine';

/** A small model of each kind of layer, so that it shows each. */
export const SAMPLE = `{
  "vocabSize": 256,
  "dModel": 64,
  "numLayers": 4,
  "nHeads": 4,
  "dState": 16,
  "seed": 1,
  "layers": [
    { "type": "mamba2" },
    { "type": "attention", "config": { "hasFfn": true } },
    { "type": "mamba1" },
    { "type": "mamba3" }
  ]
}`;

/** The configuration of the hybrid that was made last: an MBJS file is read with it. */
export const made: { config: string | null } = { config: null };

export function isHybrid(model: Model | null): model is Hybrid {
  return model !== null && 'forward' in model;
}

/** `1, 2 3` to ids, or what is wrong with it. */
export function idsOf(text: string, vocabSize: number): Uint32Array | string {
  const words = text.split(/[\s,;[\]]+/).filter(Boolean);
  if (words.length === 0) return 'Write at least one id.';
  const wrong = words.find(word => !/^\d+$/.test(word) || Number(word) >= vocabSize);
  return wrong === undefined
    ? Uint32Array.from(words, Number)
    : `“${wrong}” is no id: they are whole numbers below ${vocabSize}.`;
}

/** The likeliest next tokens, with what probability: softmax of a row of logits. */
export function likeliest(logits: Float32Array, count: number): { id: number; logit: number; probability: number }[] {
  let most = -Infinity;
  for (const logit of logits) most = Math.max(most, logit);
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - most);
  return [...logits.keys()]
    .sort((a, b) => logits[b]! - logits[a]!)
    .slice(0, count)
    .map(id => ({ id, logit: logits[id]!, probability: Math.exp(logits[id]! - most) / sum }));
}
