import { askAgain, regenerate, running } from '../answer';
import type { Turn } from '../conversation';
import { copyButton } from '../copy';
import { fill, h } from '../dom';
import { count, digits, duration } from '../format';
import { icon, type IconName } from '../icons';
import { MarkdownStream } from '../markdown/stream';
import { phase } from '../session';
import { grow } from './composer';

export interface TurnView {
  element: HTMLElement;
  /** Shows the turn as it is now; `at` is its place in the conversation. */
  update(at: number, last: boolean): void;
}

export function turnView(turn: Turn): TurnView {
  return turn.role === 'user' ? question(turn) : answer(turn);
}

function action(name: IconName, label: string, run: () => void): HTMLButtonElement {
  return h(
    'button',
    { type: 'button', class: 'quiet', 'aria-label': label, title: label, onclick: run },
    icon(name, 17),
  );
}

function canAnswer(): boolean {
  return phase.get().kind === 'ready' && running.get() === null;
}

function question(turn: Turn): TurnView {
  let place = 0;
  const text = h('div', { class: 'bubble' });
  const edit = action('edit', 'Edit this question', () => startEdit());
  const actions = h(
    'div',
    { class: 'actions' },
    edit,
    copyButton(() => turn.content, 'Copy the question'),
  );
  const element = h('article', { class: 'turn user', 'aria-label': 'You' }, text, actions);
  const startEdit = () => {
    const input = h('textarea', { class: 'field edit', 'aria-label': 'Edit the question', rows: 1 });
    input.value = turn.content;
    const end = () => {
      fill(element, text, actions);
      edit.focus();
    };
    const form = h(
      'form',
      { class: 'editor' },
      input,
      h('p', { class: 'field-note' }, 'What came after it will be answered anew.'),
      h(
        'div',
        { class: 'buttons' },
        h('button', { type: 'button', class: 'button', onclick: end }, 'Cancel'),
        h('button', { type: 'submit', class: 'button primary' }, 'Ask again'),
      ),
    );
    const send = () => {
      if (input.value.trim() && canAnswer()) void askAgain(place, input.value.trim());
    };
    form.addEventListener('submit', event => (event.preventDefault(), send()));
    input.addEventListener('keydown', event => {
      if (event.key === 'Escape') end();
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    });
    input.addEventListener('input', () => grow(input));
    fill(element, form);
    grow(input);
    input.focus();
  };
  return {
    element,
    update(at) {
      place = at;
      text.textContent = turn.content;
      edit.disabled = !canAnswer();
    },
  };
}

const CUT = {
  length: 'It reached the longest answer that Settings allow.',
  context: 'The context is full. A new conversation has room, or a longer context in Settings.',
  cancelled: 'Stopped.',
  error: 'It broke off.',
} as const;

function answer(turn: Turn): TurnView {
  let place = 0;
  const stream = new MarkdownStream();
  const wait = h('p', { class: 'wait' }, h('span', { class: 'wave', 'aria-hidden': 'true' }), h('span', {}));
  const note = h('p', { class: 'turn-note' });
  const again = action('again', 'Answer anew', () => void (canAnswer() && regenerate(place)));
  const figures = h('span', { class: 'figures' });
  const actions = h(
    'div',
    { class: 'actions' },
    copyButton(() => turn.content, 'Copy the answer'),
    again,
    figures,
  );
  const element = h(
    'article',
    { class: 'turn assistant', 'aria-label': 'Answer' },
    stream.element,
    wait,
    note,
    actions,
  );
  let shown = '';
  let grows = false;
  let counted: Turn['figures'];
  return {
    element,
    update(at, last) {
      place = at;
      const run = running.get();
      const live = run?.turn === turn;
      element.setAttribute('aria-busy', String(live));
      element.classList.toggle('live', live);
      if (turn.content !== shown || grows !== live) stream.show((shown = turn.content), (grows = live));
      wait.hidden = !(live && turn.content === '');
      if (live)
        wait.lastElementChild!.textContent = run.prompt
          ? `Reading ${count(run.prompt.read)} of ${count(run.prompt.of)} tokens`
          : 'Thinking';
      note.textContent = !live && turn.cut ? CUT[turn.cut] : '';
      note.hidden = note.textContent === '';
      actions.hidden = live;
      again.hidden = !last;
      again.disabled = !canAnswer();
      if (turn.figures !== counted) fill(figures, ...((counted = turn.figures) ? describe(counted) : []));
    },
  };
}

function describe(figures: NonNullable<Turn['figures']>): (string | Node)[] {
  const { newTokens, decodePerSecond, promptTokens, cachedTokens } = figures;
  const took = decodePerSecond > 0 ? newTokens / decodePerSecond : 0;
  const seconds = took > 0 ? ` in ${took < 60 ? `${digits(took)} s` : duration(took)}` : '';
  const fresh = promptTokens - cachedTokens;
  return [
    `${count(newTokens)} tokens${seconds} · ${digits(decodePerSecond)} tokens/s`,
    // Narrow screens have no room for it.
    h('span', {}, ` · ${count(fresh)} of ${count(promptTokens)} prompt tokens were new`),
  ];
}
