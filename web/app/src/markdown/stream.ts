import { h } from '../dom';
import { parseBlocks } from './blocks';
import { renderBlock } from './render';

/**
 * A text that grows. Blocks that are complete stay as they are, so that a selection in them stays, too; the last two
 * are drawn anew: a list may go on after an empty line, a line with bars may become a table.
 */
export class MarkdownStream {
  readonly element = h('div', { class: 'md' });
  #text = '';
  /** Where the part begins that is drawn anew, and how many elements stand before it. */
  #open = 0;
  #settled = 0;

  /** Shows a text; quick where it continues the one before. `grows`: more of it may come. */
  show(text: string, grows = false): void {
    if (!text.startsWith(this.#text)) {
      this.element.replaceChildren();
      this.#open = 0;
      this.#settled = 0;
    }
    this.#text = text;
    const tail = text.slice(this.#open);
    const placed = parseBlocks(tail);
    while (this.element.children.length > this.#settled) this.element.lastElementChild!.remove();
    const last = placed[placed.length - 1]?.block;
    // The first line of a table is none yet: it is not shown as a text with bars for a moment.
    const undecided = grows && last?.kind === 'paragraph' && last.text.startsWith('|');
    for (const { block } of undecided ? placed.slice(0, -1) : placed) this.element.appendChild(renderBlock(block));
    if (placed.length > 2) this.#settle(tail, placed.length - 2, placed[placed.length - 2]!.line);
  }

  #settle(tail: string, blocks: number, line: number): void {
    let offset = 0;
    for (let passed = 0; passed < line; passed += 1) offset = tail.indexOf('\n', offset) + 1;
    this.#open += offset;
    this.#settled += blocks;
  }
}
