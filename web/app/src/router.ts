// Views by the part of the address after `#`: they are made when they are first shown and then kept.

import { byId, h } from './dom';
import { Value } from './value';

export interface View {
  element: HTMLElement;
  /** Each time it is shown. */
  shown?(): void;
}

export interface Route {
  id: string;
  title: string;
  make(): View;
}

export const route = new Value<string>('chat');

export function go(id: string): void {
  location.hash = `#/${id}`;
}

export function startRouter(routes: Route[]): void {
  const made = new Map<string, View>();
  const main = byId('main');
  let first = true;
  const follow = () => {
    const id = location.hash.replace(/^#\//, '');
    const wanted = routes.find(one => one.id === id) ?? routes[0]!;
    let view = made.get(wanted.id);
    if (!view) {
      view = wanted.make();
      view.element.classList.add('view', `view-${wanted.id}`);
      made.set(wanted.id, view);
      main.appendChild(view.element);
    }
    for (const [other, { element }] of made) element.hidden = other !== wanted.id;
    document.title = wanted.id === 'chat' ? 'Selkie' : `${wanted.title} · Selkie`;
    route.set(wanted.id);
    // Whoever reads with a screen reader hears where they are; the first page is read anyway.
    if (!first) main.focus({ preventScroll: true });
    first = false;
    view.shown?.();
  };
  addEventListener('hashchange', follow);
  follow();
}

/** The heading of a view, and what it is for. */
export function viewHead(title: string, text: string, ...more: Node[]): HTMLElement {
  return h('header', { class: 'view-head' }, h('h1', {}, title), h('p', {}, text), ...more);
}
