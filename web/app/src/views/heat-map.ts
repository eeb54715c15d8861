import { h } from '../dom';
import { colour, share, type Grid } from '../heat';
import { isDark } from '../theme';

/** Space for the layers' names on the left and the positions beneath, in CSS pixels. */
const LEFT = 46;
const BELOW = 24;
const ROW = { few: 4, most: 14 };

export interface HeatMap {
  element: HTMLCanvasElement;
  show(grid: Grid, label: string): void;
}

export interface Cell {
  row: number;
  column: number;
}

/** A canvas of cells. The mouse and the arrow keys pick one; `onCell` says which. */
export function heatMap(onCell: (cell: Cell | null) => void): HeatMap {
  const canvas = h('canvas', { class: 'heat', tabindex: 0, role: 'img', id: 'heat-map' });
  let grid: Grid | null = null;
  let picked: Cell | null = null;

  const draw = () => grid && paint(canvas, grid, picked);
  const pick = (cell: Cell | null) => {
    picked = cell;
    draw();
    onCell(cell);
  };
  new ResizeObserver(draw).observe(canvas);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  canvas.addEventListener('pointermove', event => grid && pick(cellAt(canvas, grid, event.offsetX, event.offsetY)));
  canvas.addEventListener('pointerleave', () => pick(null));
  canvas.addEventListener('blur', () => pick(null));
  canvas.addEventListener('keydown', event => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!grid || !step) return;
    event.preventDefault();
    const from = picked ?? { row: 0, column: grid.columns.length - 1 };
    const within = (value: number, count: number) => Math.min(count - 1, Math.max(0, value));
    pick({
      row: within(from.row + (picked ? step[0]! : 0), grid.rows.length),
      column: within(from.column + (picked ? step[1]! : 0), grid.columns.length),
    });
  });
  return {
    element: canvas,
    show(next, label) {
      grid = next;
      if (picked && (picked.row >= next.rows.length || picked.column >= next.columns.length)) picked = null;
      canvas.setAttribute('aria-label', label);
      canvas.style.height = `${heightOf(next)}px`;
      draw();
    },
  };
}

function heightOf({ rows }: Grid): number {
  const each = Math.min(ROW.most, Math.max(ROW.few, Math.floor(420 / rows.length)));
  return rows.length * each + BELOW;
}

function cellAt(canvas: HTMLCanvasElement, grid: Grid, x: number, y: number): Cell | null {
  const column = Math.floor(((x - LEFT) / (canvas.clientWidth - LEFT)) * grid.columns.length);
  const row = Math.floor((y / (canvas.clientHeight - BELOW)) * grid.rows.length);
  const inside = column >= 0 && column < grid.columns.length && row >= 0 && row < grid.rows.length;
  return inside ? { row, column } : null;
}

function paint(canvas: HTMLCanvasElement, grid: Grid, picked: Cell | null): void {
  const scale = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (width === 0 || height === 0) return;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext('2d')!;
  context.scale(scale, scale);
  context.imageSmoothingEnabled = false;
  const [w, tall] = [width - LEFT, height - BELOW];
  context.drawImage(cells(grid), LEFT, 0, w, tall);
  const style = getComputedStyle(canvas);
  context.font = `12px ${style.fontFamily}`;
  context.fillStyle = style.color;
  labels(context, grid, w, tall);
  if (picked) {
    const [cw, ch] = [w / grid.columns.length, tall / grid.rows.length];
    context.lineWidth = 2;
    context.strokeStyle = isDark() ? '#ffffff' : '#000000';
    context.strokeRect(LEFT + picked.column * cw, picked.row * ch, cw, ch);
  }
}

/** One pixel a cell; the browser enlarges it. */
function cells(grid: Grid): OffscreenCanvas {
  const { rows, columns, values } = grid;
  const small = new OffscreenCanvas(columns.length, rows.length);
  const context = small.getContext('2d')!;
  const image = context.createImageData(columns.length, rows.length);
  values.forEach((value, at) => {
    image.data.set([...colour(share(value, grid)), 255], at * 4);
  });
  context.putImageData(image, 0, 0);
  return small;
}

function labels(context: CanvasRenderingContext2D, grid: Grid, w: number, tall: number): void {
  const { rows, columns } = grid;
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  let free = -Infinity;
  rows.forEach(({ layer }, row) => {
    if (row > 0 && rows[row - 1]!.layer === layer) return;
    const y = (row * tall) / rows.length;
    let end = row;
    while (end < rows.length && rows[end]!.layer === layer) end += 1;
    // A thin line of the page's colour parts the layers.
    if (row > 0) context.clearRect(LEFT, y - 0.5, w, 1);
    const middle = (y + (end * tall) / rows.length) / 2;
    if (middle - free < 14) return;
    context.fillText(String(layer), LEFT - 8, middle);
    free = middle;
  });
  context.textBaseline = 'alphabetic';
  const step = Math.max(1, Math.ceil(columns.length / Math.max(1, Math.floor(w / 70))));
  for (let column = 0; column < columns.length; column += step) {
    const x = LEFT + ((column + 0.5) * w) / columns.length;
    context.textAlign = column === 0 && columns.length > 1 ? 'left' : 'center';
    context.fillText(String(columns[column]), column === 0 && columns.length > 1 ? LEFT : x, tall + 17);
  }
}

/** The colours from little to much. */
export function scaleBar(): HTMLCanvasElement {
  const canvas = h('canvas', { class: 'scale', width: 128, height: 1, 'aria-hidden': 'true' });
  const context = canvas.getContext('2d')!;
  const image = context.createImageData(128, 1);
  for (let at = 0; at < 128; at += 1) image.data.set([...colour(at / 127), 255], at * 4);
  context.putImageData(image, 0, 0);
  return canvas;
}
