import { fill, h } from '../dom';
import { current } from '../library';
import type { View } from '../router';
import { open, phase } from '../session';
import { composer } from './composer';
import { loadingCard } from './loading';
import { transcript } from './transcript';
import { welcome } from './welcome';

/** The conversation, or where there is none yet, the way to one. */
export function chatView(): View {
  const empty = h('div', { class: 'scroller' }, welcome());
  const turns = transcript();
  const area = composer();
  const element = h(
    'div',
    {},
    h('h1', { class: 'unseen' }, 'Chat'),
    h('div', { class: 'chat-top' }, loadingCard(), otherModel()),
    empty,
    turns,
    area,
  );
  const draw = () => {
    const none = current.get().turns.length === 0;
    empty.hidden = !none;
    turns.hidden = none;
    const now = phase.get();
    element.classList.toggle('opening', none && now.kind === 'loading');
    area.hidden = none && now.kind !== 'ready';
    if (now.kind === 'ready') area.hidden = !now.model.info.hasTokenizer;
  };
  current.watch(draw);
  phase.watch(draw);
  // Whoever comes with a keyboard may write at once; on a phone the keyboard would cover the page.
  const focus = () => {
    if (phase.get().kind === 'ready' && matchMedia('(hover: hover)').matches)
      document.getElementById('question')?.focus();
  };
  let shown = current.get().id;
  current.watch(({ id }) => {
    if (id !== shown) focus();
    shown = id;
  });
  let kind = '';
  phase.watch(now => {
    if (now.kind === 'ready' && kind === 'loading') focus();
    kind = now.kind;
  });
  return { element, shown: focus };
}

/** A conversation that another model led, or that none can go on with yet. */
function otherModel(): HTMLElement {
  const line = h('p', { class: 'other-model', hidden: true });
  const draw = () => {
    const { model, turns } = current.get();
    const now = phase.get();
    const other = model && turns.length > 0 && !(now.kind === 'ready' && now.model.info.id === model.id);
    line.hidden = !other || now.kind === 'loading' || now.kind === 'lost' || now.kind === 'failed';
    if (!other || line.hidden) return;
    const { source, name } = model;
    fill(
      line,
      h(
        'span',
        {},
        now.kind === 'ready'
          ? `${name} led this conversation; ${now.model.info.name} will read it anew.`
          : `${name} led this conversation.`,
      ),
      source
        ? h('button', { type: 'button', class: 'button small', onclick: () => void open(source, name) }, `Open ${name}`)
        : h('a', { class: 'button small', href: '#/models' }, 'Choose a model'),
    );
  };
  current.watch(draw);
  phase.watch(draw);
  return line;
}
