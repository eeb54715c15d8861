import { exportAll, importFile } from '../archive';
import { confirm } from '../dialog';
import { fill, h, newId } from '../dom';
import { bytes, count } from '../format';
import { icon } from '../icons';
import { forget, list } from '../library';
import { notify, report } from '../notices';
import { change, settings } from '../settings';

/** Conversations in and out of this browser. */
export function keptSection(): HTMLElement {
  const id = newId();
  const keep = h('input', {
    id,
    type: 'checkbox',
    class: 'switch',
    name: 'keepState',
    onchange: () => change({ keepState: keep.checked }),
  });
  settings.watch(({ keepState }) => (keep.checked = keepState));
  const input = h('input', {
    type: 'file',
    id: 'import-conversations',
    class: 'unseen',
    tabindex: -1,
    accept: '.selkie',
    'aria-label': 'A file of conversations',
    onchange: () => {
      const file = input.files?.[0];
      input.value = '';
      if (file) void take(file);
    },
  });
  const some = h('p', { class: 'soft' });
  const out = h(
    'button',
    { type: 'button', class: 'button', id: 'export-all', onclick: () => void give() },
    icon('download', 17),
    'Export all',
  );
  const clear = h(
    'button',
    { type: 'button', class: 'button danger', onclick: () => void clearAll() },
    icon('trash', 17),
    'Delete all',
  );
  list.watch(all => {
    out.disabled = clear.disabled = all.length === 0;
    fill(
      some,
      all.length === 0 ? 'There are none yet.' : `${count(all.length)} ${all.length === 1 ? 'is' : 'are'} kept.`,
    );
  });
  return h(
    'section',
    { class: 'settings' },
    h('h2', {}, 'Conversations'),
    h(
      'div',
      { class: 'setting' },
      h(
        'div',
        {},
        h('label', { for: id, class: 'label' }, 'Keep the model’s state with them'),
        h(
          'p',
          { class: 'field-note' },
          'A conversation that is reopened goes on at once. It takes room in the browser.',
        ),
      ),
      h('div', { class: 'setting-input' }, keep),
    ),
    some,
    h(
      'div',
      { class: 'buttons' },
      out,
      h('button', { type: 'button', class: 'button', onclick: () => input.click() }, icon('upload', 17), 'Import'),
      input,
      clear,
    ),
  );
}

export async function take(file: File): Promise<void> {
  try {
    const added = await importFile(file);
    notify({
      kind: 'info',
      key: 'import',
      title: `${count(added)} imported`,
      text: `${file.name}, ${bytes(file.size)}`,
    });
  } catch (error) {
    report('This file could not be imported', error);
  }
}

async function give(): Promise<void> {
  try {
    await exportAll();
  } catch (error) {
    report('The conversations could not be exported', error);
  }
}

async function clearAll(): Promise<void> {
  const all = [...list.get()];
  if (
    !(await confirm(
      'Delete all conversations?',
      `${count(all.length)} of them, with the states of their models.`,
      'Delete all',
    ))
  )
    return;
  for (const { id } of all) await forget(id);
}
