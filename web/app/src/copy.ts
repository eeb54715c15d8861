import { announce, fill, h } from './dom';
import { icon } from './icons';

/** Where the clipboard is refused, `false`. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** A button that copies what `text` gives when it is pressed. With a caption it shows it, else only the icon. */
export function copyButton(text: () => string, label: string, caption?: string): HTMLButtonElement {
  const face = (done: boolean | null) => [
    icon(done === false ? 'warning' : done ? 'check' : 'copy', 17),
    caption ? h('span', {}, done ? 'Copied' : caption) : null,
  ];
  const button = h(
    'button',
    { type: 'button', class: caption ? 'button' : 'quiet', 'aria-label': label, title: label },
    ...face(null),
  );
  button.addEventListener('click', async () => {
    const done = await copyText(text());
    announce(done ? 'Copied' : 'The browser did not allow copying');
    fill(button, ...face(done));
    setTimeout(() => fill(button, ...face(null)), 1600);
  });
  return button;
}

/** Hands a file to the visitor. */
export function download(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const link = h('a', { href: url, download: name });
  document.body.appendChild(link);
  link.click();
  link.remove();
  // The browser takes a moment to open it.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
