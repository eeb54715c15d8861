import { byId, fill, h } from '../dom';
import { icon } from '../icons';
import { start } from '../library';
import { go } from '../router';
import { isLoss, phase, type Phase } from '../session';
import { openDrawer } from './drawer';

/** What is open, always in view; on narrow screens the ways to the sidebar and to a new conversation, too. */
export function fillBar(): void {
  const chip = h('a', { class: 'chip', id: 'model-chip', href: '#/models' });
  phase.watch(now => {
    chip.dataset['kind'] = now.kind;
    fill(
      chip,
      h('span', { class: 'dot', 'aria-hidden': 'true' }),
      h('span', { class: 'chip-name' }, nameOf(now)),
      h('span', { class: 'chip-note' }, noteOf(now)),
    );
  });
  fill(
    byId('bar'),
    h(
      'button',
      {
        type: 'button',
        class: 'quiet narrow',
        id: 'menu',
        'aria-label': 'Menu',
        'aria-controls': 'sidebar',
        'aria-expanded': 'false',
        onclick: openDrawer,
      },
      icon('menu', 22),
    ),
    chip,
    h(
      'button',
      { type: 'button', class: 'quiet narrow', 'aria-label': 'New conversation', onclick: () => (start(), go('chat')) },
      icon('plus', 22),
    ),
  );
}

function nameOf(now: Phase): string {
  if (now.kind === 'none') return 'No model';
  return now.kind === 'ready' ? now.model.info.name : now.wanted.name;
}

function noteOf(now: Phase): string {
  switch (now.kind) {
    case 'none':
      return 'Choose one';
    case 'loading':
      return now.progress && now.progress.total > 0
        ? `${Math.floor((100 * now.progress.loaded) / now.progress.total)} %`
        : 'opening';
    case 'ready':
      return now.model.info.backend === 'webgpu' ? 'GPU' : 'CPU';
    case 'failed':
      return 'not opened';
    case 'lost':
      return isLoss(now.error) ? 'lost the GPU' : 'broke off';
  }
}
