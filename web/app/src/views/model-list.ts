import { announce, fill, h } from '../dom';
import { confirm } from '../dialog';
import { Selkie, type StoredModel } from '../engine';
import { judge, machine, usesGpu } from '../fits';
import { bytes, digits, when } from '../format';
import { icon } from '../icons';
import { report } from '../notices';
import { estimate } from '../pace';
import { go } from '../router';
import { open, phase } from '../session';
import { Value } from '../value';
import suggestions from '../../models.json';

interface Entry {
  title: string;
  /** Small words beside the title. */
  tags: string[];
  text: string;
  bytes: number;
  stored: boolean;
  source: string;
  action: string;
  remove?: () => Promise<void>;
}

export const stored = new Value<StoredModel[]>([]);

export async function refreshStored(): Promise<void> {
  try {
    // What a failed beginning left is nothing to open.
    stored.set((await Selkie.store.list()).filter(({ have }) => have > 0));
  } catch (error) {
    report('The models that are kept here cannot be listed', error);
  }
}

/** What lies in the browser. Empty where nothing does. */
export function storedList(most = Infinity): HTMLElement {
  return entries(
    () => stored.get().slice(0, most).map(ofStored),
    draw => void stored.watch(draw),
  );
}

/** What a visitor may begin with; what is stored already is not said twice. */
export function suggestedList(most = Infinity): HTMLElement {
  return entries(
    () => {
      const here = new Set(stored.get().map(model => model.url));
      return suggestions
        .filter(model => !here.has(model.url))
        .slice(0, most)
        .map(ofSuggestion);
    },
    draw => void stored.watch(draw),
  );
}

function ofStored(model: StoredModel): Entry {
  const whole = model.have >= model.bytes;
  return {
    title: model.name,
    tags: whole ? [] : [`${bytes(model.have)} of ${bytes(model.bytes)} are here`],
    text: `Last used ${when(model.used)}`,
    bytes: model.bytes,
    stored: true,
    // A download that was cut goes on from its address.
    source: whole || !model.url ? `stored:${model.name}` : model.url,
    action: whole ? 'Open' : 'Go on',
    remove: () => askDelete(model),
  };
}

async function askDelete({ name, have }: StoredModel): Promise<void> {
  if (!(await confirm('Delete this model?', `${name}, ${bytes(have)}. It can be fetched again.`, 'Delete'))) return;
  try {
    await Selkie.store.delete(name);
    announce(`${name} was deleted`);
  } catch (error) {
    report('The model was not deleted', error);
  }
  await refreshStored();
}

function ofSuggestion(model: (typeof suggestions)[number]): Entry {
  const { url, name, type, kind } = model;
  return {
    title: name,
    tags: [type, kind],
    text: model.about,
    bytes: model.bytes,
    stored: false,
    source: url,
    action: 'Get',
  };
}

function entries(list: () => Entry[], watch: (draw: () => void) => void): HTMLElement {
  const element = h('ul', { class: 'models' });
  const draw = () => fill(element, ...list().map(row));
  watch(draw);
  machine.watch(draw);
  phase.watch(({ kind }) => {
    // The last answers say how fast others would be.
    if (kind === 'ready') draw();
    for (const button of element.querySelectorAll<HTMLButtonElement>('button.open'))
      button.disabled = kind === 'loading';
  });
  return element;
}

function row(entry: Entry): HTMLElement {
  const verdict = judge(entry.bytes, machine.get(), entry.stored);
  const fit = verdict && h('span', { class: `fit ${verdict.level}`, title: verdict.detail }, verdict.label);
  const pace = verdict && estimate(entry.bytes, usesGpu(machine.get()) ? 'webgpu' : 'cpu');
  const speed =
    pace === null ? null : h('span', { class: 'pace', title: 'From the answers so far' }, `≈ ${digits(pace)} tokens/s`);
  return h(
    'li',
    { class: 'model', 'data-source': entry.source },
    h(
      'div',
      { class: 'model-text' },
      h('h3', {}, entry.title, ...entry.tags.map(tag => h('span', { class: 'tag' }, tag))),
      h('p', {}, entry.text, verdict && verdict.level !== 'fits' ? ` ${verdict.detail}` : null),
    ),
    h('div', { class: 'model-size' }, h('span', {}, bytes(entry.bytes)), fit, speed),
    h(
      'div',
      { class: 'model-actions' },
      h(
        'button',
        {
          type: 'button',
          class: `button open${entry.stored && verdict?.level !== 'no' ? ' primary' : ''}`,
          'aria-label': `${entry.action} ${entry.title} ${entry.tags[0] ?? ''}`,
          onclick: () => (go('chat'), void open(entry.source, entry.title)),
        },
        entry.stored ? null : icon('download', 17),
        entry.action,
      ),
      entry.remove
        ? h(
            'button',
            {
              type: 'button',
              class: 'quiet',
              'aria-label': `Delete ${entry.title}`,
              title: 'Delete',
              onclick: () => void entry.remove!(),
            },
            icon('trash'),
          )
        : null,
    ),
  );
}
