// On narrow screens the sidebar lies over the page and is out of reach while it is closed.

import { byId } from '../dom';

const narrow = matchMedia('(max-width: 820px)');
let open = false;

export function startDrawer(): void {
  narrow.addEventListener('change', apply);
  byId('backdrop').addEventListener('click', closeDrawer);
  addEventListener('keydown', event => {
    if (event.key === 'Escape' && open) closeDrawer();
  });
  apply();
}

export function openDrawer(): void {
  open = true;
  apply();
  byId('sidebar').querySelector<HTMLElement>('button, a')?.focus();
}

export function closeDrawer(): void {
  if (!open) return;
  open = false;
  apply();
  document.getElementById('menu')?.focus();
}

function apply(): void {
  if (!narrow.matches) open = false;
  byId('app').classList.toggle('drawer-open', open);
  byId('sidebar').inert = narrow.matches && !open;
  byId('backdrop').hidden = !open;
  document.getElementById('menu')?.setAttribute('aria-expanded', String(open));
}
