import { fill, h, newId } from '../dom';
import { icon } from '../icons';
import { open } from '../session';
import { go } from '../router';

/** A file from this machine, or an address. `prefix`: of the ids, where there are several on the page. */
export function opener(prefix = ''): HTMLElement {
  const id = newId();
  const note = newId();
  const address = h('input', {
    id,
    type: 'url',
    class: 'field',
    name: 'url',
    placeholder: 'https://…/model.gguf',
    autocomplete: 'off',
    spellcheck: 'false',
    'aria-describedby': note,
  });
  const error = h('p', { id: note, class: 'field-note' });
  const form = h(
    'form',
    { class: 'opener-url', id: `${prefix}open-url`, novalidate: true },
    h('label', { for: id, class: 'label' }, 'Address of a model'),
    h('div', { class: 'joined' }, address, h('button', { type: 'submit', class: 'button' }, 'Open')),
    error,
  );
  form.addEventListener('submit', event => {
    event.preventDefault();
    const url = asUrl(address.value);
    address.setAttribute('aria-invalid', String(!url));
    fill(error, url ? '' : 'That is no address of a file: it begins with https://');
    if (url) void openFrom(url);
  });
  return h('div', { class: 'opener' }, filePicker(prefix), form);
}

/** A button in front of the browser's own file dialog. */
function filePicker(prefix: string): HTMLElement {
  const input = h('input', {
    type: 'file',
    id: `${prefix}open-files`,
    class: 'unseen',
    multiple: true,
    tabindex: -1,
    'aria-label': 'Model files',
    accept: '.gguf,.safetensors,.mbjs,.bin,.json,.jinja',
    onchange: () => {
      if (input.files && input.files.length > 0) void openFrom([...input.files]);
      input.value = '';
    },
  });
  return h(
    'div',
    { class: 'opener-file' },
    h('button', { type: 'button', class: 'button', onclick: () => input.click() }, icon('file'), 'Open a file'),
    input,
    h(
      'p',
      { class: 'field-note' },
      'A .gguf, or .safetensors or .mbjs with its config.json. Dropping it anywhere works, too.',
    ),
  );
}

async function openFrom(source: string | File[]): Promise<void> {
  go('chat');
  await open(source);
}

/** An address, or a path on this page's own server. */
function asUrl(text: string): string | null {
  if (!/^\s*(https?:\/\/|\.{0,2}\/)/.test(text)) return null;
  try {
    return new URL(text.trim(), location.href).href;
  } catch {
    return null;
  }
}
