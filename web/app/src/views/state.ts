import { append, fill, h, newId } from '../dom';
import type { Model } from '../engine';
import { count, digits } from '../format';
import { gridOf, type Grid } from '../heat';
import { viewHead, type View } from '../router';
import { phase } from '../session';
import { settings } from '../settings';
import { clearTrace, closely, sample, trace } from '../trace';
import { heatMap, scaleBar, type Cell } from './heat-map';

/** The recurrent state over time. */
export function stateView(): View {
  const kind = h('select', { class: 'field', id: 'state-kind', onchange: () => draw() });
  const layer = h('select', { class: 'field', id: 'state-layer', onchange: () => draw() });
  const scale = h('select', { class: 'field', id: 'state-scale', onchange: () => draw() });
  const during = h('input', {
    type: 'checkbox',
    class: 'switch',
    id: newId(),
    onchange: () => closely.set(during.checked),
  });
  const readout = h('p', { class: 'readout', role: 'status', 'aria-live': 'polite' });
  const legend = h('p', { class: 'legend' });
  const table = h('tbody');
  const nothing = h('p', { class: 'card soft', id: 'no-state' });
  let grid: Grid | null = null;
  const map = heatMap(cell => fill(readout, cell && grid ? describeCell(grid, cell) : AT_REST));
  const picture = h(
    'section',
    { class: 'card' },
    h(
      'div',
      { class: 'state-controls' },
      field('Kind of state', kind),
      field('Layers', layer),
      field('Values', scale),
      h('label', { class: 'check', for: during.id }, during, h('span', {}, 'Sample while it answers, too')),
      h(
        'button',
        { type: 'button', class: 'button small', onclick: () => opened() && void sample(opened()!) },
        'Sample now',
      ),
      h('button', { type: 'button', class: 'button small', onclick: clearTrace }, 'Clear'),
    ),
    map.element,
    legend,
    readout,
    h(
      'details',
      {},
      h('summary', {}, 'As a table'),
      h(
        'table',
        { class: 'figures-table' },
        h(
          'thead',
          {},
          h('tr', {}, ...['Layer', 'First', 'Last', 'Largest'].map(name => h('th', { scope: 'col' }, name))),
        ),
        table,
      ),
    ),
  );

  const draw = () => {
    const now = opened();
    const current = trace.get();
    const names = [...new Set(current.samples.at(-1)?.tracks.map(({ name }) => name))].sort(byInterest);
    const why = reason(now, names.length);
    nothing.hidden = !why;
    picture.hidden = why !== '';
    fill(nothing, why);
    if (why || !now) return;
    options(
      kind,
      names.map(name => [name, name]),
    );
    const layers = [
      ...new Set(
        current.samples
          .at(-1)!
          .tracks.filter(({ name }) => name === kind.value)
          .map(track => track.layer),
      ),
    ];
    options(layer, [
      ['', 'All'],
      ...layers.map((at): [string, string] => [String(at), `${at} · ${now.info.schedule[at] ?? ''}`]),
    ]);
    options(scale, [
      ['', 'As they are'],
      ['relative', 'Beside their mean over time'],
    ]);
    grid = gridOf(current, kind.value, layer.value === '' ? null : Number(layer.value), scale.value === 'relative');
    if (!grid) return;
    map.show(grid, describe(grid, kind.value));
    fill(
      legend,
      digits(grid.least),
      scaleBar(),
      digits(grid.most),
      h('span', { class: 'soft' }, `root mean square${scale.value ? ', of its mean' : ''}, on a logarithmic scale`),
    );
    fill(table, ...tableRows(grid));
  };
  phase.watch(draw);
  trace.watch(draw);
  settings.watch(draw);
  fill(readout, AT_REST);
  const element = h('div', {});
  append(element, [
    viewHead(
      'State',
      'A recurrent layer keeps what it read in a state of fixed size. Here is how strong its channels are, after each answer.',
    ),
    nothing,
    picture,
  ]);
  return { element, shown: draw };
}

const AT_REST = 'Layers from top to bottom, positions from left to right. Point at a cell, or use the arrow keys.';

function opened(): Model | null {
  const now = phase.get();
  return now.kind === 'ready' ? now.model : null;
}

function reason(model: Model | null, kinds: number): string {
  if (!model) return 'No model is open. Mamba and Granite 4.0 H have recurrent layers; there are some under Models.';
  if (!model.info.recurrent)
    return `${model.info.name} has no recurrent layers: attention keeps all that it read. Mamba and Granite 4.0 H have some.`;
  return kinds === 0 ? 'Nothing was sampled yet: ask something, and come back.' : '';
}

function field(label: string, select: HTMLSelectElement): HTMLElement {
  return h('div', {}, h('label', { class: 'field-note', for: select.id }, label), select);
}

/** The recurrence before the windows of convolutions, which hold the last few tokens alone. */
function byInterest(a: string, b: string): number {
  return Number(a === 'window') - Number(b === 'window');
}

/** Keeps what is chosen where it is still there. */
function options(select: HTMLSelectElement, wanted: [value: string, text: string][]): void {
  const chosen = select.value;
  if (select.options.length === wanted.length && wanted.every(([value], at) => select.options[at]!.value === value))
    return;
  fill(select, ...wanted.map(([value, text]) => h('option', { value }, text)));
  if (wanted.some(([value]) => value === chosen)) select.value = chosen;
}

function describe({ rows, columns, least, most }: Grid, kind: string): string {
  const layers = new Set(rows.map(({ layer }) => layer)).size;
  return (
    `Heat-map of the ${kind} state of ${layers} ${layers === 1 ? 'layer' : 'layers'}, ${columns.length} samples ` +
    `from position ${columns[0]} to ${columns.at(-1)}; values from ${digits(least)} to ${digits(most)}. The table beneath says them by layer.`
  );
}

function describeCell(grid: Grid, { row, column }: Cell): string {
  const { layer, from, to } = grid.rows[row]!;
  const value = grid.values[row * grid.columns.length + column]!;
  return `Layer ${layer}, channels ${from} to ${to - 1}, after ${count(grid.columns[column]!)} tokens: ${value.toPrecision(3)}`;
}

function tableRows({ rows, columns, values }: Grid): HTMLElement[] {
  const layers = [...new Set(rows.map(({ layer }) => layer))];
  return layers.map(layer => {
    const own = rows.flatMap((row, at) => (row.layer === layer ? [at] : []));
    const norm = (column: number) =>
      Math.sqrt(own.reduce((sum, row) => sum + values[row * columns.length + column]! ** 2, 0) / own.length);
    const all = columns.map((_, column) => norm(column));
    const cells = [all[0]!, all.at(-1)!, Math.max(...all)].map(value => h('td', {}, value.toPrecision(3)));
    return h('tr', {}, h('th', { scope: 'row' }, layer), ...cells);
  });
}
