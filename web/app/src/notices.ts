// What the page tells at its top: errors, and what can be done about them.

import { byId, h } from './dom';
import { explain } from './errors';
import { icon } from './icons';

export interface Action {
  label: string;
  run: () => void;
}

export interface Notice {
  kind: 'error' | 'warning' | 'info';
  title: string;
  text?: string;
  actions?: Action[];
  /** Notices with the same key replace each other. */
  key?: string;
}

/** Milliseconds that good news stays. */
const SHORT = 8000;

const shown = new Map<string, () => void>();
let count = 0;

/** Shows a notice; gives what takes it away. */
export function notify(notice: Notice): () => void {
  const key = notice.key ?? `notice-${(count += 1)}`;
  shown.get(key)?.();
  const close = () => {
    element.remove();
    if (shown.get(key) === close) shown.delete(key);
  };
  const buttons = (notice.actions ?? []).map(({ label, run }) =>
    h('button', { type: 'button', class: 'button small', onclick: () => (close(), run()) }, label),
  );
  const element = h(
    'section',
    // Errors are read out at once, the rest when there is a pause.
    { class: `notice ${notice.kind}`, role: notice.kind === 'error' ? 'alert' : 'status' },
    icon(notice.kind === 'info' ? 'check' : 'warning'),
    h('div', { class: 'notice-text' }, h('strong', {}, notice.title), notice.text ? h('p', {}, notice.text) : null),
    h('div', { class: 'notice-actions' }, ...buttons),
    h(
      'button',
      { type: 'button', class: 'quiet', 'aria-label': 'Dismiss', title: 'Dismiss', onclick: close },
      icon('close', 18),
    ),
  );
  byId('notices').appendChild(element);
  shown.set(key, close);
  if (notice.kind === 'info') setTimeout(close, SHORT);
  return close;
}

export function dismiss(key: string): void {
  shown.get(key)?.();
}

/** An error in a sentence, with what to do. */
export function report(title: string, error: unknown, actions: Action[] = []): void {
  const { text } = explain(error);
  notify({ kind: 'error', title, text, actions, key: title });
}
