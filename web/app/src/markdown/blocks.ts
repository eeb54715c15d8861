// Text to blocks: the parts of Markdown that models write. No HTML: `<b>` stays the three characters it is.

export type Align = 'left' | 'center' | 'right' | null;

export interface Item {
  /** `[ ]` and `[x]` at its beginning. */
  done: boolean | null;
  blocks: Block[];
}

export type Block =
  | { kind: 'paragraph'; text: string }
  | { kind: 'heading'; level: number; text: string }
  | { kind: 'code'; language: string; text: string }
  | { kind: 'quote'; blocks: Block[] }
  | { kind: 'list'; start: number | null; loose: boolean; items: Item[] }
  | { kind: 'table'; align: Align[]; head: string[]; rows: string[][] }
  | { kind: 'rule' };

/** A block, and the line at which it begins. */
export interface Placed {
  block: Block;
  line: number;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(\s+|$)/;
const DELIMITERS = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const TASK = /^\[([ xX])\]\s+/;

/** Quotes in lists in quotes: deeper ones are read as text, so that no answer exhausts the stack. */
const MAX_DEPTH = 12;

export function parseBlocks(text: string): Placed[] {
  return parse(text.split('\n'), 0);
}

function parse(lines: string[], depth: number): Placed[] {
  const placed: Placed[] = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at]!)) {
      at += 1;
      continue;
    }
    const [block, next] = readBlock(lines, at, depth);
    placed.push({ block, line: at });
    at = next;
  }
  return placed;
}

function readBlock(lines: string[], at: number, depth: number): [Block, number] {
  const line = lines[at]!;
  const fence = FENCE.exec(line);
  if (fence) return readCode(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [{ kind: 'heading', level: heading[1]!.length, text: heading[2] ?? '' }, at + 1];
  if (RULE.test(line)) return [{ kind: 'rule' }, at + 1];
  if (depth < MAX_DEPTH && QUOTE.test(line)) return readQuote(lines, at, depth);
  if (depth < MAX_DEPTH && ITEM.test(line)) return readList(lines, at, depth);
  if (isTable(lines, at)) return readTable(lines, at);
  return readParagraph(lines, at);
}

function isBlank(line: string): boolean {
  return line.trim() === '';
}

function readCode(lines: string[], at: number, fence: RegExpExecArray): [Block, number] {
  const mark = fence[1]!;
  const indent = lines[at]!.indexOf(mark);
  const end = new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}\\s*$`);
  const text: string[] = [];
  let next = at + 1;
  // Without an end it goes on to the end of the text: a block that is still being written.
  while (next < lines.length && !end.test(lines[next]!)) {
    text.push(lines[next]!.replace(new RegExp(`^ {0,${indent}}`), ''));
    next += 1;
  }
  const language = fence[2]!.trim().split(/\s+/)[0] ?? '';
  return [{ kind: 'code', language, text: text.join('\n') }, next + 1];
}

function readQuote(lines: string[], at: number, depth: number): [Block, number] {
  const inner: string[] = [];
  let next = at;
  while (next < lines.length && QUOTE.test(lines[next]!)) {
    inner.push(lines[next]!.replace(QUOTE, ''));
    next += 1;
  }
  return [{ kind: 'quote', blocks: parse(inner, depth + 1).map(({ block }) => block) }, next];
}

function readList(lines: string[], at: number, depth: number): [Block, number] {
  const first = ITEM.exec(lines[at]!)!;
  const ordered = /\d/.test(first[2]!);
  const items: Item[] = [];
  let loose = false;
  let next = at;
  while (next < lines.length) {
    const mark = ITEM.exec(lines[next]!);
    if (!mark || RULE.test(lines[next]!) || /\d/.test(mark[2]!) !== ordered) break;
    const [inner, after] = readItem(lines, next, mark);
    const gap = inner.findIndex(isBlank);
    if (gap >= 0 && gap < inner.length - 1) loose = true;
    items.push(toItem(inner, depth));
    next = after;
    const blank = next;
    while (next < lines.length && isBlank(lines[next]!)) next += 1;
    if (next > blank && next < lines.length && ITEM.test(lines[next]!) && !RULE.test(lines[next]!)) loose = true;
  }
  return [{ kind: 'list', start: ordered ? Number.parseInt(first[2]!, 10) : null, loose, items }, next];
}

/** The lines of an item without their indentation. */
function readItem(lines: string[], at: number, mark: RegExpExecArray): [string[], number] {
  const gap = mark[3]!.length;
  const width = mark[1]!.length + mark[2]!.length + (gap > 4 || gap === 0 ? 1 : gap);
  const inner = [lines[at]!.slice(width)];
  let next = at + 1;
  while (next < lines.length) {
    const line = lines[next]!;
    if (isBlank(line)) {
      // It belongs to the item where an indented line follows.
      const after = lines.slice(next, next + 3).find(other => !isBlank(other));
      if (after === undefined || indentOf(after) < Math.min(width, 2)) break;
      inner.push('');
    } else if (indentOf(line) >= Math.min(width, 2)) {
      inner.push(line.slice(Math.min(indentOf(line), width)));
    } else if (startsBlock(lines, next)) {
      break;
    } else if (isBlank(inner[inner.length - 1]!)) {
      break;
    } else {
      inner.push(line.trimStart());
    }
    next += 1;
  }
  return [inner, next];
}

function toItem(lines: string[], depth: number): Item {
  const task = TASK.exec(lines[0]!);
  if (task) lines[0] = lines[0]!.slice(task[0].length);
  return { done: task ? task[1] !== ' ' : null, blocks: parse(lines, depth + 1).map(({ block }) => block) };
}

function indentOf(line: string): number {
  return line.length - line.trimStart().length;
}

/** Whether a paragraph ends before this line. */
function startsBlock(lines: string[], at: number): boolean {
  const line = lines[at]!;
  return (
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    QUOTE.test(line) ||
    ITEM.test(line) ||
    isTable(lines, at)
  );
}

function isTable(lines: string[], at: number): boolean {
  const delimiters = lines[at + 1];
  return (
    lines[at]!.includes('|') &&
    delimiters !== undefined &&
    delimiters.includes('-') &&
    DELIMITERS.test(delimiters) &&
    cellsOf(lines[at]!).length === cellsOf(delimiters).length
  );
}

function readTable(lines: string[], at: number): [Block, number] {
  const head = cellsOf(lines[at]!);
  const align = cellsOf(lines[at + 1]!).map((cell): Align => {
    const left = cell.startsWith(':');
    const right = cell.endsWith(':');
    return left && right ? 'center' : right ? 'right' : left ? 'left' : null;
  });
  const rows: string[][] = [];
  let next = at + 2;
  while (next < lines.length && !isBlank(lines[next]!) && lines[next]!.includes('|')) {
    const cells = cellsOf(lines[next]!);
    rows.push(head.map((_, column) => cells[column] ?? ''));
    next += 1;
  }
  return [{ kind: 'table', align, head, rows }, next];
}

/** `\|` and bars in code do not part cells. */
function cellsOf(line: string): string[] {
  const cells: string[] = [];
  let cell = '';
  let code = false;
  for (let at = 0; at < line.length; at += 1) {
    const sign = line[at]!;
    if (sign === '\\' && line[at + 1] === '|') {
      cell += '|';
      at += 1;
    } else if (sign === '|' && !code) {
      cells.push(cell.trim());
      cell = '';
    } else {
      if (sign === '`') code = !code;
      cell += sign;
    }
  }
  cells.push(cell.trim());
  if (cells[0] === '') cells.shift();
  if (cells[cells.length - 1] === '') cells.pop();
  return cells;
}

function readParagraph(lines: string[], at: number): [Block, number] {
  const text = [lines[at]!.trimStart()];
  let next = at + 1;
  while (next < lines.length && !isBlank(lines[next]!) && !startsBlock(lines, next)) {
    text.push(lines[next]!.trimStart());
    next += 1;
  }
  return [{ kind: 'paragraph', text: text.join('\n').trimEnd() }, next];
}
