import { running, stop } from '../answer';
import { exportOne } from '../archive';
import type { Conversation } from '../conversation';
import { askText, confirm } from '../dialog';
import { announce, byId, fill, h } from '../dom';
import { when } from '../format';
import { icon, type IconName } from '../icons';
import { current, forget, list, rename, show, start } from '../library';
import { report } from '../notices';
import { go, route } from '../router';
import { change, settings, type Theme } from '../settings';
import { nextTheme } from '../theme';
import { closeDrawer } from './drawer';

const PLACES: [id: string, title: string, icon: IconName][] = [
  ['chat', 'Chat', 'chat'],
  ['models', 'Models', 'models'],
  ['settings', 'Settings', 'settings'],
  ['conformance', 'Conformance', 'conformance'],
  ['state', 'State', 'state'],
  ['lab', 'Lab', 'lab'],
];

export function fillSidebar(): void {
  const fresh = () => {
    start();
    go('chat');
    closeDrawer();
    announce('New conversation');
  };
  fill(
    byId('sidebar'),
    h(
      'div',
      { class: 'brand' },
      h('img', { src: './icon.svg', alt: '', width: 28, height: 28 }),
      h('span', {}, 'Selkie'),
      themeButton(),
    ),
    h(
      'button',
      { type: 'button', class: 'button new', id: 'new-conversation', onclick: fresh },
      icon('plus'),
      'New conversation',
    ),
    h('div', { class: 'conversations' }, h('h2', { class: 'unseen' }, 'Conversations'), conversations()),
    places(),
  );
}

function places(): HTMLElement {
  const links = PLACES.map(([id, title, name]) =>
    h('a', { href: `#/${id}`, 'data-place': id, onclick: closeDrawer }, icon(name), title),
  );
  route.watch(now => {
    for (const link of links) {
      if (link.dataset['place'] === now) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
  });
  return h('ul', { class: 'places' }, ...links.map(link => h('li', {}, link)));
}

function conversations(): HTMLElement {
  const element = h('ul', { class: 'conversation-list', id: 'conversations' });
  const empty = h('p', { class: 'soft none' }, 'What you ask is kept here, in this browser.');
  const draw = () => {
    const all = list.get();
    const now = current.get().id;
    // The focus stays on the entry it is on.
    const focused = (document.activeElement as HTMLElement | null)?.closest<HTMLElement>('[data-conversation]')
      ?.dataset['conversation'];
    fill(element, ...all.map(one => entry(one, one.id === now)));
    if (focused) element.querySelector<HTMLElement>(`[data-conversation="${CSS.escape(focused)}"] .title`)?.focus();
    empty.hidden = all.length > 0;
  };
  let drawn = '';
  const drawIfChanged = () => {
    const key = JSON.stringify([
      current.get().id,
      route.get(),
      list.get().map(({ id, title, updated }) => [id, title, updated]),
    ]);
    if (key !== drawn) draw();
    drawn = key;
  };
  list.watch(drawIfChanged);
  current.watch(drawIfChanged);
  return h('div', {}, empty, element);
}

function entry(one: Conversation, isCurrent: boolean): HTMLElement {
  const pick = () => {
    show(one.id);
    go('chat');
    closeDrawer();
  };
  return h(
    'li',
    { 'data-conversation': one.id, class: isCurrent ? 'current' : null },
    h(
      'button',
      {
        type: 'button',
        class: 'title',
        'aria-current': isCurrent ? 'true' : null,
        title: `${one.title} · ${when(one.updated)}`,
        onclick: pick,
      },
      one.title,
    ),
    menu(one),
  );
}

/** Rename, export, delete: behind one button, in a popover that the browser closes by itself. */
function menu(one: Conversation): HTMLElement {
  const id = `menu-${one.id}`;
  const item = (name: IconName, label: string, run: () => Promise<void>, kind = '') =>
    h(
      'button',
      {
        type: 'button',
        class: `menu-item ${kind}`,
        onclick: () => {
          popover.hidePopover();
          run().catch((error: unknown) => report(`“${label}” did not work`, error));
        },
      },
      icon(name, 17),
      label,
    );
  const popover = h(
    'div',
    { id, popover: 'auto', class: 'menu' },
    item('edit', 'Rename', () => askName(one)),
    item('download', 'Export', () => exportOne(one)),
    item('trash', 'Delete', () => askDelete(one), 'danger'),
  );
  const button = h(
    'button',
    { type: 'button', class: 'quiet more', popovertarget: id, 'aria-label': `More for ${one.title}`, title: 'More' },
    icon('more', 18),
  );
  popover.addEventListener('toggle', event => {
    if ((event as ToggleEvent).newState !== 'open') return;
    const { bottom, right } = button.getBoundingClientRect();
    popover.style.top = `${Math.min(bottom + 4, innerHeight - popover.offsetHeight - 8)}px`;
    popover.style.left = `${Math.max(8, right - popover.offsetWidth)}px`;
  });
  return h('span', { class: 'menu-at' }, button, popover);
}

async function askName(one: Conversation): Promise<void> {
  const title = await askText('Rename', 'Title', one.title, 'Rename');
  if (title) await rename(one.id, title);
}

async function askDelete(one: Conversation): Promise<void> {
  if (
    !(await confirm(
      'Delete this conversation?',
      `“${one.title}” and what the model kept of it will be gone.`,
      'Delete',
    ))
  )
    return;
  if (running.get()?.conversation.id === one.id) stop();
  await forget(one.id);
  announce('Deleted');
}

const THEMES: Record<Theme, string> = { auto: 'as the system', light: 'light', dark: 'dark' };

function themeButton(): HTMLElement {
  const button = h('button', {
    type: 'button',
    class: 'quiet',
    id: 'theme',
    onclick: () => change({ theme: nextTheme(settings.get().theme) }),
  });
  settings.watch(({ theme }) => {
    fill(button, icon(theme, 19));
    button.setAttribute('aria-label', `Theme: ${THEMES[theme]}`);
    button.title = `Theme: ${THEMES[theme]}`;
  });
  return button;
}
