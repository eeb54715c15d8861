// What stands within a line: code, emphasis, links.

export type Inline =
  | { kind: 'text'; text: string }
  | { kind: 'code'; text: string }
  | { kind: 'break' }
  | { kind: 'link'; address: string; inner: Inline[] }
  | { kind: 'strong' | 'emphasis' | 'deleted'; inner: Inline[] };

/** A run of `*`, `_` or `~` that may open or close; `used` of its signs are spent. */
interface Run {
  node: Inline & { kind: 'text' };
  sign: string;
  opens: boolean;
  closes: boolean;
}

const ESCAPABLE = /[\\`*_{}[\]()#+\-.!|~<>]/;
const BARE = /^https?:\/\/[^\s<>()[\]"'`]*(?:\([^\s<>()]*\)[^\s<>()[\]"'`]*)*/;
const SPACE = /^$|\s/;
const PUNCTUATION = /[\p{P}\p{S}]/u;

/** Only what opens a page or a letter: no `javascript:`, no `data:`. */
export function safeAddress(text: string): string | null {
  try {
    const { protocol, href } = new URL(text);
    return protocol === 'http:' || protocol === 'https:' || protocol === 'mailto:' ? href : null;
  } catch {
    return null;
  }
}

export function parseInline(text: string, links = true): Inline[] {
  const nodes: Inline[] = [];
  const runs: Run[] = [];
  let plain = '';
  let at = 0;
  const flush = () => {
    if (plain) nodes.push({ kind: 'text', text: plain });
    plain = '';
  };
  const add = (node: Inline, length: number) => {
    flush();
    nodes.push(node);
    at += length;
  };
  while (at < text.length) {
    const sign = text[at]!;
    if (sign === '\\' && ESCAPABLE.test(text[at + 1] ?? '')) {
      plain += text[at + 1];
      at += 2;
    } else if (sign === '\n') {
      const hard = plain.endsWith('  ') || plain.endsWith('\\');
      plain = plain.replace(/[ \\]+$/, '');
      if (hard) add({ kind: 'break' }, 1);
      else {
        plain += '\n';
        at += 1;
      }
    } else if (sign === '`') {
      const code = readCode(text, at);
      if (code) add({ kind: 'code', text: code.text }, code.length);
      else {
        const ticks = /^`+/.exec(text.slice(at))![0];
        plain += ticks;
        at += ticks.length;
      }
    } else if (links && (sign === '[' || (sign === '!' && text[at + 1] === '['))) {
      const link = readLink(text, at);
      if (link) add(link.node, link.length);
      else {
        plain += sign;
        at += 1;
      }
    } else if (links && (sign === 'h' || sign === '<') && !/\w/.test(text[at - 1] ?? '')) {
      const link = readBare(text, at);
      if (link) add(link.node, link.length);
      else {
        plain += sign;
        at += 1;
      }
    } else if (sign === '*' || sign === '_' || sign === '~') {
      let end = at;
      while (text[end] === sign) end += 1;
      flush();
      const run = runOf(sign, text, at, end);
      nodes.push(run.node);
      if (run.opens || run.closes) runs.push(run);
      at = end;
    } else {
      plain += sign;
      at += 1;
    }
  }
  flush();
  return emphasise(nodes, runs);
}

function runOf(sign: string, text: string, start: number, end: number): Run {
  const before = text[start - 1] ?? '';
  const after = text[end] ?? '';
  const left = !SPACE.test(after) && (!PUNCTUATION.test(after) || SPACE.test(before) || PUNCTUATION.test(before));
  const right = !SPACE.test(before) && (!PUNCTUATION.test(before) || SPACE.test(after) || PUNCTUATION.test(after));
  const within = sign === '_';
  return {
    node: { kind: 'text', text: text.slice(start, end) },
    sign,
    // `snake_case_names` are no emphasis.
    opens: left && !(within && right && !PUNCTUATION.test(before)),
    closes: right && !(within && left && !PUNCTUATION.test(after)),
  };
}

/** Pairs runs from the inside out; what finds no partner stays text. */
function emphasise(nodes: Inline[], runs: Run[]): Inline[] {
  const open: Run[] = [];
  for (const run of runs) {
    while (run.closes && run.node.text) {
      let from = open.length - 1;
      // Beyond some depth nothing is paired: the search stays short for whatever a model writes.
      const limit = Math.max(0, open.length - 32);
      while (from >= limit && (open[from]!.sign !== run.sign || !pairs(open[from]!, run))) from -= 1;
      if (from < limit) break;
      const opener = open[from]!;
      const length = Math.min(opener.node.text.length, run.node.text.length, 2);
      wrap(nodes, opener, run, run.sign === '~' ? 'deleted' : length === 2 ? 'strong' : 'emphasis', length);
      open.length = opener.node.text ? from + 1 : from;
    }
    if (run.opens && run.node.text) open.push(run);
  }
  return nodes.filter(node => node.kind !== 'text' || node.text !== '');
}

function pairs(opener: Run, closer: Run): boolean {
  // A single `~` stands for `about` more often than for anything else.
  return closer.sign !== '~' || (opener.node.text.length === 2 && closer.node.text.length === 2);
}

function wrap(
  nodes: Inline[],
  opener: Run,
  closer: Run,
  kind: 'strong' | 'emphasis' | 'deleted',
  length: number,
): void {
  const from = nodes.indexOf(opener.node) + 1;
  const to = nodes.indexOf(closer.node, from);
  const inner = nodes.slice(from, to).filter(node => node.kind !== 'text' || node.text !== '');
  nodes.splice(from, to - from, { kind, inner });
  opener.node.text = opener.node.text.slice(length);
  closer.node.text = closer.node.text.slice(length);
}

function readCode(text: string, at: number): { text: string; length: number } | null {
  const ticks = /^`+/.exec(text.slice(at, at + 64))![0];
  let end = at + ticks.length;
  while ((end = text.indexOf(ticks, end)) >= 0) {
    if (text[end + ticks.length] !== '`' && text[end - 1] !== '`') break;
    while (text[end] === '`') end += 1;
  }
  if (end < 0) return null;
  const inner = text.slice(at + ticks.length, end).replace(/\n/g, ' ');
  // One space on both sides is there so that code may begin with a backtick.
  const padded = inner.startsWith(' ') && inner.endsWith(' ') && inner.trim() !== '';
  return { text: padded ? inner.slice(1, -1) : inner, length: end + ticks.length - at };
}

/** `[text](address "title")`; an image becomes a link to it: nothing is fetched unasked. */
function readLink(text: string, at: number): { node: Inline; length: number } | null {
  const image = text[at] === '!';
  const start = at + (image ? 2 : 1);
  let depth = 1;
  let close = start;
  for (; close < text.length && close - start < 1000; close += 1) {
    if (text[close] === '\\') close += 1;
    else if (text[close] === '[') depth += 1;
    else if (text[close] === ']' && (depth -= 1) === 0) break;
  }
  if (text[close] !== ']' || text[close + 1] !== '(') return null;
  const target = /^\(\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(
    text.slice(close + 1, close + 3000),
  );
  if (!target) return null;
  const label = text.slice(start, close);
  const inner = parseInline(label || target[1]!, false);
  const address = safeAddress(target[1]!);
  const length = close + 1 + target[0].length - at;
  // An address that is not opened is shown as it was written.
  if (!address) return { node: { kind: 'text', text: text.slice(at, at + length) }, length };
  return { node: { kind: 'link', address, inner }, length };
}

function readBare(text: string, at: number): { node: Inline; length: number } | null {
  const bracketed = text[at] === '<';
  if (bracketed) {
    const found = /^<((?:https?:\/\/|mailto:)[^\s<>]*)>/.exec(text.slice(at, at + 3000));
    const address = found && safeAddress(found[1]!);
    if (!found || !address) return null;
    return { node: { kind: 'link', address, inner: [{ kind: 'text', text: found[1]! }] }, length: found[0].length };
  }
  const found = BARE.exec(text.slice(at, at + 3000))?.[0].replace(/[.,;:!?*_~]+$/, '');
  const address = found && safeAddress(found);
  if (!found || !address) return null;
  return { node: { kind: 'link', address, inner: [{ kind: 'text', text: found }] }, length: found.length };
}
