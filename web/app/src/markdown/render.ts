// Blocks to elements. Every text goes in as text.

import { h } from '../dom';
import { copyButton } from '../copy';
import type { Block, Item } from './blocks';
import { parseInline, type Inline } from './inline';

export function renderBlock(block: Block): HTMLElement {
  switch (block.kind) {
    case 'paragraph':
      return h('p', {}, ...inline(block.text));
    case 'heading':
      // The page's own headings end at the second level.
      return h(`h${Math.min(6, block.level + 2)}` as 'h3', { class: `md-h${block.level}` }, ...inline(block.text));
    case 'code':
      return code(block.language, block.text);
    case 'quote':
      return h('blockquote', {}, ...block.blocks.map(renderBlock));
    case 'list':
      return list(block);
    case 'table':
      return table(block);
    case 'rule':
      return h('hr');
  }
}

function inline(text: string): Node[] {
  return parseInline(text).map(renderInline);
}

function renderInline(node: Inline): Node {
  switch (node.kind) {
    case 'text':
      return document.createTextNode(node.text);
    case 'code':
      return h('code', {}, node.text);
    case 'break':
      return h('br');
    case 'link':
      return h(
        'a',
        { href: node.address, target: '_blank', rel: 'noopener noreferrer' },
        ...node.inner.map(renderInline),
      );
    case 'strong':
      return h('strong', {}, ...node.inner.map(renderInline));
    case 'emphasis':
      return h('em', {}, ...node.inner.map(renderInline));
    case 'deleted':
      return h('del', {}, ...node.inner.map(renderInline));
  }
}

function code(language: string, text: string): HTMLElement {
  return h(
    'figure',
    { class: 'code' },
    h(
      'figcaption',
      {},
      h('span', {}, language || 'text'),
      copyButton(() => text, 'Copy code'),
    ),
    // It scrolls sideways, so the keyboard has to reach it.
    h('pre', { tabindex: 0, 'aria-label': language ? `Code in ${language}` : 'Code' }, h('code', {}, text)),
  );
}

function list(block: Block & { kind: 'list' }): HTMLElement {
  const items = block.items.map(item => listItem(item, block.loose));
  if (block.start === null) return h('ul', {}, ...items);
  return h('ol', { start: block.start === 1 ? null : block.start }, ...items);
}

function listItem(item: Item, loose: boolean): HTMLElement {
  const children = item.blocks.flatMap((block): Node[] =>
    block.kind === 'paragraph' && !loose ? inline(block.text) : [renderBlock(block)],
  );
  if (item.done === null) return h('li', {}, ...children);
  const box = h('input', {
    type: 'checkbox',
    disabled: true,
    checked: item.done,
    'aria-label': item.done ? 'done' : 'not done',
  });
  return h('li', { class: 'task' }, box, ...children);
}

function table(block: Block & { kind: 'table' }): HTMLElement {
  const cell = (tag: 'th' | 'td', text: string, column: number) => {
    const align = block.align[column];
    return h(tag, { class: align ? `align-${align}` : null, scope: tag === 'th' ? 'col' : null }, ...inline(text));
  };
  return h(
    'div',
    { class: 'table', tabindex: 0, role: 'region', 'aria-label': 'Table' },
    h(
      'table',
      {},
      h('thead', {}, h('tr', {}, ...block.head.map((text, column) => cell('th', text, column)))),
      h('tbody', {}, ...block.rows.map(row => h('tr', {}, ...row.map((text, column) => cell('td', text, column))))),
    ),
  );
}
