import { append, h, newId, type Child } from '../dom';
import type { Device } from '../engine';
import { viewHead, type View } from '../router';
import { phase, reopen } from '../session';
import { change, DEFAULTS, settings, type Settings, type Theme } from '../settings';
import { keptSection } from './kept';

interface NumberField {
  key: 'temperature' | 'topK' | 'topP' | 'minP' | 'repetitionPenalty' | 'maxTokens';
  label: string;
  text: string;
  min: number;
  max: number;
  step: number;
}

const SAMPLING: NumberField[] = [
  {
    key: 'temperature',
    label: 'Temperature',
    text: '0 always takes the likeliest word; more is more various.',
    min: 0,
    max: 2,
    step: 0.05,
  },
  {
    key: 'topK',
    label: 'Top-k',
    text: 'Only this many of the likeliest tokens; 0 for all.',
    min: 0,
    max: 200,
    step: 1,
  },
  {
    key: 'topP',
    label: 'Top-p',
    text: 'Only the likeliest that together have this share.',
    min: 0.05,
    max: 1,
    step: 0.01,
  },
  {
    key: 'minP',
    label: 'Min-p',
    text: 'Only those at least this likely beside the likeliest.',
    min: 0,
    max: 1,
    step: 0.01,
  },
  {
    key: 'repetitionPenalty',
    label: 'Repetition penalty',
    text: '1 for none; more makes repetition less likely.',
    min: 1,
    max: 2,
    step: 0.01,
  },
];

export function settingsView(): View {
  const element = h('div', {});
  append(element, [
    viewHead('Settings', 'Kept in this browser. They hold from the next answer on.'),
    section('Instructions', systemField()),
    section(
      'How it writes',
      ...SAMPLING.map(slider),
      optionalNumber('seed', 'Seed', 'The same seed gives the same text. Empty: another one each time.', 0, 4294967295),
      maxTokens(),
    ),
    section(
      'Where it runs',
      deviceField(),
      optionalNumber(
        'context',
        'Context',
        'Tokens that a conversation may have. Empty: 4,096, or what the model was made for.',
        64,
        1048576,
      ),
      reopenLine(),
    ),
    section('How it looks', themeField()),
    keptSection(),
    h(
      'p',
      {},
      h(
        'button',
        {
          type: 'button',
          class: 'button',
          onclick: () => change({ ...DEFAULTS, system: settings.get().system, theme: settings.get().theme }),
        },
        'Back to the defaults',
      ),
    ),
  ]);
  return { element };
}

export function section(title: string, ...children: Child[]): HTMLElement {
  return h('section', { class: 'settings' }, h('h2', {}, title), ...children);
}

function systemField(): HTMLElement {
  const id = newId();
  const input = h('textarea', {
    id,
    class: 'field',
    rows: 4,
    placeholder: 'You are a helpful assistant.',
    oninput: () => change({ system: input.value }),
  });
  settings.watch(({ system }) => {
    if (input.value !== system) input.value = system;
  });
  return h(
    'div',
    { class: 'setting wide' },
    h('label', { for: id, class: 'label' }, 'System prompt'),
    h('p', { class: 'field-note' }, 'Stands before each conversation.'),
    input,
  );
}

/** A slider and a number beside it, which say the same. */
function slider(field: NumberField): HTMLElement {
  const id = newId();
  const note = newId();
  const { key, min, max, step } = field;
  const common = { min, max, step, 'aria-describedby': note };
  const range = h('input', {
    ...common,
    type: 'range',
    'aria-label': field.label,
    oninput: () => change({ [key]: Number(range.value) }),
  });
  const number = h('input', {
    ...common,
    id,
    type: 'number',
    class: 'field number',
    name: key,
    onchange: () => take(),
  });
  const take = () => {
    const value = Number(number.value);
    if (number.value !== '' && value >= min && value <= max)
      change({ [key]: key === 'topK' ? Math.round(value) : value });
    else number.value = String(settings.get()[key]);
  };
  settings.watch(now => {
    range.value = String(now[key]);
    if (document.activeElement !== number || Number(number.value) !== now[key]) number.value = String(now[key]);
  });
  return h(
    'div',
    { class: 'setting' },
    h(
      'div',
      {},
      h('label', { for: id, class: 'label' }, field.label),
      h('p', { class: 'field-note', id: note }, field.text),
    ),
    h('div', { class: 'setting-input' }, range, number),
  );
}

function maxTokens(): HTMLElement {
  return plainNumber(
    'Longest answer',
    'Tokens after which an answer ends.',
    1,
    1048576,
    'maxTokens',
    value => value ?? DEFAULTS.maxTokens,
  );
}

function optionalNumber(key: 'seed' | 'context', label: string, text: string, min: number, max: number): HTMLElement {
  return plainNumber(label, text, min, max, key, value => value);
}

function plainNumber(
  label: string,
  text: string,
  min: number,
  max: number,
  key: 'seed' | 'context' | 'maxTokens',
  read: (value: number | null) => number | null,
): HTMLElement {
  const id = newId();
  const note = newId();
  const input = h('input', {
    id,
    type: 'number',
    class: 'field number',
    name: key,
    min,
    max,
    step: 1,
    'aria-describedby': note,
    onchange: () => take(),
  });
  const take = () => {
    const value = input.value === '' ? null : Math.round(Number(input.value));
    if (value === null || (value >= min && value <= max)) change({ [key]: read(value) } as Partial<Settings>);
    show();
  };
  const show = () => {
    input.value = String(settings.get()[key] ?? '');
  };
  settings.watch(show);
  return h(
    'div',
    { class: 'setting' },
    h('div', {}, h('label', { for: id, class: 'label' }, label), h('p', { class: 'field-note', id: note }, text)),
    h('div', { class: 'setting-input' }, input),
  );
}

/** Some words of which one is chosen. */
function choice<T extends string>(
  label: string,
  text: string,
  name: string,
  options: [T, string][],
  get: () => T,
  set: (value: T) => void,
): HTMLElement {
  const inputs = options.map(([value, title]) => {
    const input = h('input', { type: 'radio', name, value, onchange: () => set(value) });
    return { value, input, element: h('label', { class: 'option' }, input, h('span', {}, title)) };
  });
  settings.watch(() => {
    for (const { value, input } of inputs) input.checked = value === get();
  });
  return h(
    'fieldset',
    { class: 'setting' },
    h('legend', { class: 'unseen' }, label),
    h('div', {}, h('span', { class: 'label', 'aria-hidden': 'true' }, label), h('p', { class: 'field-note' }, text)),
    h('div', { class: 'options' }, ...inputs.map(({ element }) => element)),
  );
}

function deviceField(): HTMLElement {
  const options: [Device, string][] = [
    ['auto', 'Automatic'],
    ['webgpu', 'GPU'],
    ['cpu', 'CPU'],
  ];
  return choice(
    'Device',
    'Automatic: a GPU that is no software, else the CPU.',
    'device',
    options,
    () => settings.get().device,
    device => change({ device }),
  );
}

function themeField(): HTMLElement {
  const options: [Theme, string][] = [
    ['auto', 'System'],
    ['light', 'Light'],
    ['dark', 'Dark'],
  ];
  return choice(
    'Theme',
    'Light or dark, or what the system has.',
    'theme',
    options,
    () => settings.get().theme,
    theme => change({ theme }),
  );
}

/** Device and context are the model's from when it is opened. */
function reopenLine(): HTMLElement {
  const line = h(
    'p',
    { class: 'row', hidden: true },
    h('span', { class: 'soft' }, 'Device and context hold once the model is opened again.'),
    h('button', { type: 'button', class: 'button small', onclick: () => void reopen() }, 'Open it again'),
  );
  phase.watch(now => {
    line.hidden = now.kind !== 'ready' || now.wanted.source === null;
  });
  return line;
}
