import { running } from '../answer';
import type { Turn } from '../conversation';
import { h } from '../dom';
import { icon } from '../icons';
import { current } from '../library';
import { phase } from '../session';
import { turnView, type TurnView } from './turn';

/** Pixels from the end within which the visitor is taken to read along. */
const NEAR = 80;

/** The turns of the conversation. It follows the answer as long as its end is in view. */
export function transcript(): HTMLElement {
  const turns = h('div', {
    class: 'turns',
    role: 'log',
    'aria-live': 'off',
    'aria-label': 'Conversation',
    tabindex: -1,
  });
  const down = h(
    'button',
    { type: 'button', class: 'to-end', 'aria-label': 'To the end', title: 'To the end', hidden: true },
    icon('down', 18),
  );
  const scroller = h('div', { class: 'scroller' }, turns);
  const views = new WeakMap<Turn, TurnView>();
  let follows = true;
  let drawn = '';

  const atEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR;
  const toEnd = () => {
    scroller.scrollTop = scroller.scrollHeight;
  };
  scroller.addEventListener('scroll', () => {
    follows = atEnd();
    down.hidden = follows;
  });
  down.addEventListener('click', () => ((follows = true), toEnd()));

  const draw = () => {
    const conversation = current.get();
    const wanted = conversation.turns.map(turn => {
      const view = views.get(turn) ?? turnView(turn);
      views.set(turn, view);
      return view;
    });
    const elements = wanted.map(({ element }) => element);
    const same =
      elements.length === turns.children.length && elements.every((element, at) => element === turns.children[at]);
    const grew = elements.length > turns.children.length;
    if (!same) turns.replaceChildren(...elements);
    wanted.forEach((view, at) => view.update(at, at === wanted.length - 1));
    if (drawn !== conversation.id || grew) follows = true;
    drawn = conversation.id;
    if (follows) toEnd();
  };
  let live: Turn | null = null;
  const drawLive = () => {
    const at = current.get().turns.length - 1;
    if (live && current.get().turns[at] === live) views.get(live)?.update(at, true);
    if (follows) toEnd();
  };
  let waiting = false;
  let whole = false;
  /** Pieces come faster than pictures: one drawing a frame, and of the last turn where only that one grew. */
  const drawSoon = (all: boolean) => {
    whole ||= all;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (whole) draw();
      else drawLive();
      whole = false;
    });
  };
  current.watch(() => drawSoon(true));
  running.watch(run => {
    drawSoon(run?.turn !== live);
    live = run?.turn ?? null;
  });
  phase.watch(() => drawSoon(true));
  return h('div', { class: 'transcript' }, scroller, down);
}
