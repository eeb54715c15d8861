import { ask, running, stop } from '../answer';
import { fill, h } from '../dom';
import { count, digits } from '../format';
import { icon } from '../icons';
import { current } from '../library';
import { phase, type Phase } from '../session';

/** Where questions are written; beneath it what the model is doing. */
export function composer(): HTMLElement {
  const text = h('textarea', {
    id: 'question',
    rows: 1,
    class: 'composer-text',
    'aria-label': 'Your message',
    'aria-describedby': 'composer-hint',
  });
  const button = h('button', { type: 'submit', class: 'send', id: 'send' });
  const form = h('form', { class: 'composer', id: 'composer' }, text, button);
  const foot = h(
    'div',
    { class: 'composer-foot' },
    contextMeter(),
    speed(),
    h('span', { id: 'composer-hint', class: 'hint' }, hint()),
  );

  const update = () => {
    const busy = running.get() !== null;
    const ready = phase.get().kind === 'ready';
    text.placeholder = ready ? placeholder(phase.get()) : 'Open a model to begin';
    text.disabled = !ready;
    button.type = busy ? 'button' : 'submit';
    button.disabled = !busy && (!ready || text.value.trim() === '');
    button.setAttribute('aria-label', busy ? 'Stop' : 'Send');
    button.title = busy ? 'Stop (Esc)' : 'Send (Enter)';
    button.classList.toggle('busy', busy);
  };
  const face = (busy: boolean) => fill(button, icon(busy ? 'stop' : 'send'));
  let busy: boolean | null = null;
  running.watch(run => {
    if (busy !== (run !== null)) face((busy = run !== null));
    update();
  });
  phase.watch(update);
  text.addEventListener('input', () => (grow(text), update()));
  text.addEventListener('keydown', event => {
    // Enter that ends the choice of a character (Chinese, Japanese) sends nothing.
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit(button.type === 'submit' ? button : null);
    }
  });
  button.addEventListener('click', event => {
    if (running.get()) {
      event.preventDefault();
      stop();
      text.focus();
    }
  });
  form.addEventListener('submit', event => {
    event.preventDefault();
    const question = text.value.trim();
    if (!question || running.get() || phase.get().kind !== 'ready') return;
    text.value = '';
    grow(text);
    void ask(question);
  });
  return h('div', { class: 'composer-area' }, form, foot);
}

function hint(): string {
  return matchMedia('(hover: hover)').matches ? 'Enter sends, Shift+Enter begins a line' : '';
}

function placeholder(now: Phase): string {
  if (now.kind !== 'ready') return '';
  return now.model.info.hasChatTemplate ? `Ask ${now.model.info.name}` : 'Write a beginning';
}

/** As high as its lines; the style sheet says where it begins to scroll. */
export function grow(text: HTMLTextAreaElement): void {
  text.style.height = 'auto';
  text.style.height = `${text.scrollHeight + 2}px`;
}

/** Positions that the conversation takes, of those that there are. */
function contextMeter(): HTMLElement {
  const meter = h('meter', { class: 'meter', min: 0, 'aria-label': 'Context used' });
  const text = h('span', {});
  const element = h('span', { class: 'context', id: 'context' }, meter, text);
  const draw = () => {
    const { contextUsed: last = 0, contextSize } = current.get();
    const run = running.get();
    // While it answers it is counted here; afterwards the package says it.
    const contextUsed = run?.conversation === current.get() ? run.before + (run.prompt?.of ?? 0) + run.pieces : last;
    const now = phase.get();
    const size = contextSize ?? (now.kind === 'ready' ? now.model.info.context : null);
    element.hidden = size === null || (contextUsed === 0 && now.kind !== 'ready');
    if (size === null) return;
    meter.max = size;
    meter.high = size * 0.85;
    meter.value = contextUsed;
    text.textContent = `${count(contextUsed)} of ${count(size)} tokens`;
  };
  current.watch(draw);
  running.watch(draw);
  phase.watch(draw);
  return element;
}

function speed(): HTMLElement {
  const element = h('span', { class: 'speed', id: 'speed' });
  const draw = () => {
    const run = running.get();
    const last = current.get().turns.at(-1)?.figures;
    if (run?.prompt && run.pieces === 0)
      element.textContent = `reading ${count(run.prompt.read)} of ${count(run.prompt.of)} tokens`;
    else if (run && run.pieces > 1) element.textContent = `${digits(run.perSecond)} tokens/s`;
    else if (run) element.textContent = 'thinking';
    else element.textContent = last ? `${digits(last.decodePerSecond)} tokens/s` : '';
  };
  running.watch(draw);
  current.watch(draw);
  return element;
}
