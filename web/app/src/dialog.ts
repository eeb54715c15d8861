// Questions that wait for an answer: the browser's own <dialog> keeps the focus in and gives it back.

import { h, newId, type Child } from './dom';

/** Whether the visitor says yes. */
export function confirm(title: string, text: string, yes: string): Promise<boolean> {
  return show(title, [h('p', {}, text)], yes, 'danger', () => true, false);
}

/** A line of text, or `null`. */
export function askText(title: string, label: string, value: string, yes: string): Promise<string | null> {
  const id = newId();
  const input = h('input', { id, type: 'text', value, class: 'field', autocomplete: 'off' });
  const body = [h('label', { for: id, class: 'label' }, label), input];
  queueMicrotask(() => input.select());
  return show<string | null>(title, body, yes, 'primary', () => input.value.trim() || null, null);
}

function show<T>(title: string, body: Child[], yes: string, kind: string, value: () => T, none: T): Promise<T> {
  return new Promise(resolve => {
    const id = newId();
    const dialog = h(
      'dialog',
      { class: 'dialog', 'aria-labelledby': id },
      h(
        'form',
        { method: 'dialog' },
        h('h2', { id }, title),
        ...body,
        h(
          'div',
          { class: 'dialog-actions' },
          h('button', { type: 'button', class: 'button', onclick: () => dialog.close('no') }, 'Cancel'),
          h('button', { type: 'submit', value: 'yes', class: `button ${kind}` }, yes),
        ),
      ),
    );
    dialog.addEventListener('close', () => {
      resolve(dialog.returnValue === 'yes' ? value() : none);
      dialog.remove();
    });
    document.body.appendChild(dialog);
    dialog.showModal();
  });
}
