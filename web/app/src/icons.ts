// Drawn on 24 by 24, with lines only, in the colour of the text around.

const PATHS = {
  menu: 'M4 7h16M4 12h16M4 17h16',
  plus: 'M12 5v14M5 12h14',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h10v11H9zM6 15H5V4h10v2',
  check: 'M5 13l4.5 4.5L19 7',
  again: 'M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6',
  edit: 'M5 19h3.5L19 8.5 15.5 5 5 15.5zM13.5 7l3.5 3.5',
  trash: 'M5 7h14M10 7V4.5h4V7M7 7l1 12.5h8L17 7M10.5 11v5M13.5 11v5',
  download: 'M12 4v11M7 11l5 5 5-5M5 20h14',
  upload: 'M12 16V5M7 9.5l5-5 5 5M5 20h14',
  chat: 'M5 5h14v11h-8l-4 3.5V16H5z',
  models: 'M12 3.5l8 4.3v8.4l-8 4.3-8-4.3V7.8zM4 7.8l8 4.4 8-4.4M12 12.2v8.3',
  settings: 'M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4',
  conformance: 'M12 3.5l7 2.5v5.5c0 4-2.8 7.3-7 9-4.2-1.7-7-5-7-9V6zM8.7 12l2.4 2.4 4.4-4.6',
  state: 'M4 17c2.7 0 2.7-10 5.3-10s2.7 10 5.4 10S17.3 7 20 7',
  lab: 'M9.5 4h5M10.5 4v6L5.5 18.5A1.2 1.2 0 0 0 6.6 20h10.8a1.2 1.2 0 0 0 1.1-1.5L13.5 10V4M8 15h8',
  light:
    'M12 8.2a3.8 3.8 0 1 1 0 7.6 3.8 3.8 0 0 1 0-7.6zM12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6L7 7M17 17l1.4 1.4M18.4 5.6L17 7M7 17l-1.4 1.4',
  dark: 'M19.5 14.3A8 8 0 0 1 9.7 4.5a8 8 0 1 0 9.8 9.8z',
  auto: 'M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 4v16M12 8h6.9M12 12h8M12 16h6.9',
  close: 'M6 6l12 12M18 6L6 18',
  file: 'M7 3.5h7l4 4v13H7zM14 3.5v4h4',
  warning: 'M12 4.5l8.5 15h-17zM12 10v4.5M12 17v.2',
  more: 'M6 12h.1M12 12h.1M18 12h.1',
  down: 'M12 5v14M6 13l6 6 6-6',
  link: 'M10 14a4 4 0 0 0 5.7 0l3-3A4 4 0 0 0 13 5.3l-1 1M14 10a4 4 0 0 0-5.7 0l-3 3a4 4 0 0 0 5.7 5.7l1-1',
} as const;

export type IconName = keyof typeof PATHS;

const SVG = 'http://www.w3.org/2000/svg';

/** Beside a text or a label: screen readers pass it by. */
export function icon(name: IconName, size = 20): SVGSVGElement {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('width', String(size));
  svg.setAttribute('height', String(size));
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', PATHS[name]);
  svg.appendChild(path);
  return svg;
}
