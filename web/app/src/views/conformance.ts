import { append, announce, fill, h } from '../dom';
import { copyButton } from '../copy';
import type { Check, DeviceReport, MatrixInfo, Model } from '../engine';
import { lookAround, machine } from '../fits';
import { count, digits, scientific } from '../format';
import { made, SAMPLE } from '../hybrid';
import { report } from '../notices';
import { bandwidth, dispatch, textReport } from '../report';
import { viewHead, type View } from '../router';
import { create, model, phase } from '../session';
import { Value } from '../value';

/** All that was checked since the model was opened, in order. */
const checks = new Value<Check[]>([]);

/** What this machine computes, beside what it should. */
export function conformanceView(): View {
  const element = h('div', {});
  const copy = copyButton(
    () => textReport(machine.get().device, model()?.info ?? null, checks.get()),
    'Copy the report as text',
    'Copy report',
  );
  copy.id = 'copy-report';
  append(element, [
    viewHead(
      'Conformance',
      'The kernels of Selkie, and the matrices of the model that is open, against a reference on this machine.',
      h('p', {}, copy),
    ),
    deviceSection(),
    checksSection(),
  ]);
  let before: Model | null = null;
  phase.watch(() => {
    if (model() !== before) checks.set([]);
    before = model();
  });
  return { element };
}

function deviceSection(): HTMLElement {
  const body = h('div', {});
  const measure = h('button', { type: 'button', class: 'button', id: 'measure' }, 'Measure');
  measure.addEventListener('click', async () => {
    await busyWhile(measure, () => lookAround(true), 'The device could not be measured');
    announce('Measured');
  });
  machine.watch(({ device }) => {
    measure.disabled = !device?.adapter;
    fill(body, ...(device ? describeDevice(device) : [h('p', { class: 'soft' }, 'Looking…')]));
  });
  return h(
    'section',
    { class: 'card', id: 'device' },
    h('div', { class: 'row' }, h('h2', {}, 'Device'), measure),
    body,
  );
}

function describeDevice({ adapter, cpu, userAgent }: DeviceReport): Node[] {
  const facts: [string, string][] = [
    [
      'Adapter',
      adapter
        ? `${adapter.name}${adapter.software ? ' (software: models run on the CPU)' : ''}`
        : 'none: models run on the CPU',
    ],
    ['CPU', cpu.simd === 'relaxed' ? 'wasm with relaxed SIMD' : 'wasm with SIMD'],
    ['Read bandwidth', adapter ? bandwidth(adapter.readBandwidth) : '–'],
    ['One dispatch', adapter ? dispatch(adapter.dispatchSeconds) : '–'],
    ['Browser', userAgent],
  ];
  const nodes: Node[] = [
    h(
      'dl',
      { class: 'facts' },
      ...facts.map(([name, value]) =>
        h('div', { class: name === 'Browser' ? 'wide' : null }, h('dt', {}, name), h('dd', {}, value)),
      ),
    ),
  ];
  if (!adapter) return nodes;
  nodes.push(h('p', { class: 'tags' }, ...adapter.features.map(feature => h('span', { class: 'tag' }, feature))));
  const rows = Object.entries(adapter.limits).map(([name, value]) =>
    h('tr', {}, h('th', { scope: 'row' }, name), h('td', { class: 'align-right' }, count(value))),
  );
  nodes.push(
    h(
      'details',
      {},
      h('summary', {}, `${rows.length} limits`),
      h('div', { class: 'table' }, h('table', { class: 'figures-table' }, h('tbody', {}, ...rows))),
    ),
  );
  return nodes;
}

function checksSection(): HTMLElement {
  const controls = h('div', {});
  const results = h('div', { id: 'checks' });
  phase.watch(({ kind }) => {
    const opened = model();
    // Progress does not rebuild it.
    if (kind !== 'loading' || controls.childElementCount === 0)
      fill(controls, ...(opened ? controlsFor(opened) : withoutModel()));
  });
  checks.watch(all => fill(results, all.length === 0 ? null : table(all)));
  return h('section', { class: 'card' }, h('h2', {}, 'Checks'), controls, results);
}

function withoutModel(): Node[] {
  const make = h(
    'button',
    { type: 'button', class: 'button', onclick: () => ((made.config = SAMPLE), void create(SAMPLE, 'a small hybrid')) },
    'Make a small one',
  );
  return [
    h(
      'p',
      { class: 'soft' },
      'They run with a model: open one, or make a small hybrid with random weights, which takes a moment.',
    ),
    h('p', { class: 'buttons' }, make),
  ];
}

function controlsFor(opened: Model): Node[] {
  const all = h('button', { type: 'button', class: 'button primary', id: 'self-test' }, 'Test the kernels');
  all.addEventListener('click', () => void busyWhile(all, () => check(opened), 'The kernels could not be tested'));
  const select = h('select', { class: 'field', id: 'matrix', 'aria-label': 'Matrix', disabled: true });
  const find = h('input', {
    type: 'search',
    class: 'field',
    placeholder: 'Find a matrix',
    'aria-label': 'Find a matrix',
    autocomplete: 'off',
  });
  const one = h('button', { type: 'button', class: 'button', id: 'check-matrix', disabled: true }, 'Check it');
  let matrices: MatrixInfo[] = [];
  const list = () => {
    const word = find.value.trim().toLowerCase();
    const found = matrices.filter(({ name, type }) => `${name} ${type}`.toLowerCase().includes(word));
    fill(
      select,
      ...found.map(({ name, shape, type }) => h('option', { value: name }, `${name} · ${shape.join(' × ')} · ${type}`)),
    );
    select.disabled = one.disabled = found.length === 0;
  };
  find.addEventListener('input', list);
  one.addEventListener(
    'click',
    () => void busyWhile(one, () => check(opened, select.value), 'The matrix could not be checked'),
  );
  opened.matrices().then(
    found => ((matrices = found), list()),
    (error: unknown) => report('The matrices cannot be listed', error),
  );
  return [
    h(
      'p',
      { class: 'soft' },
      `With ${opened.info.name}, on ${opened.info.backend === 'webgpu' ? opened.info.device : 'the CPU'}.`,
    ),
    h('div', { class: 'check-controls' }, all, h('div', { class: 'matrix' }, find, select, one)),
  ];
}

async function check(opened: Model, matrix?: string): Promise<void> {
  const found = await opened.check(matrix);
  if (model() !== opened) return;
  checks.set([...found, ...checks.get()]);
  const wrong = found.filter(({ ok }) => !ok).length;
  announce(
    wrong === 0 ? `${found.length} checks are within their tolerance` : `${wrong} of ${found.length} checks are wrong`,
  );
}

async function busyWhile(button: HTMLButtonElement, run: () => Promise<unknown>, failure: string): Promise<void> {
  button.disabled = true;
  button.setAttribute('aria-busy', 'true');
  try {
    await run();
  } catch (error) {
    report(failure, error);
  } finally {
    button.disabled = false;
    button.removeAttribute('aria-busy');
  }
}

function table(all: Check[]): HTMLElement {
  const wrong = all.filter(({ ok }) => !ok).length;
  const details = new Set(all.map(({ detail }) => detail));
  const heads = ['', 'What', 'Error', 'Tolerance', 'Time'];
  return h(
    'div',
    {},
    h(
      'p',
      { class: `verdict ${wrong === 0 ? 'fits' : 'no'}` },
      wrong === 0 ? `All ${all.length} within their tolerance` : `${wrong} of ${all.length} beyond their tolerance`,
    ),
    h(
      'div',
      { class: 'table', tabindex: 0, role: 'region', 'aria-label': 'Checks' },
      h(
        'table',
        { class: 'figures-table wide' },
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            ...heads.map(head => h('th', { scope: 'col' }, head || h('span', { class: 'unseen' }, 'Result'))),
          ),
        ),
        h('tbody', {}, ...all.map(row)),
      ),
    ),
    ...[...details].map(detail => h('p', { class: 'field-note' }, `Error: ${detail}.`)),
  );
}

function row({ name, error, tolerance, ok, milliseconds }: Check): HTMLElement {
  return h(
    'tr',
    { class: ok ? null : 'wrong' },
    h('td', {}, h('span', { class: `fit ${ok ? 'fits' : 'no'}` }, ok ? 'ok' : 'wrong')),
    h('th', { scope: 'row' }, name),
    h('td', {}, scientific(error)),
    h('td', {}, scientific(tolerance)),
    h('td', {}, `${digits(milliseconds)} ms`),
  );
}
