import { fill, h, announce } from '../dom';
import type { Progress, Source } from '../engine';
import { explain } from '../errors';
import { bytes, count, duration } from '../format';
import { icon } from '../icons';
import { cancel, open, phase, reopen, type Phase } from '../session';
import { go } from '../router';
import { change } from '../settings';

const STAGES: Record<Progress['stage'], string> = {
  download: 'Downloading',
  load: 'Loading',
  compile: 'Compiling for the GPU',
  ready: 'Ready',
};

/** How a model comes: stage, bytes, rate, time left, and a button that ends it. Nothing where none is on its way. `prefix`: of the ids. */
export function loadingCard(prefix = ''): HTMLElement {
  const card = h('section', { class: 'card loading', 'aria-label': 'Opening a model', hidden: true });
  const title = h('h2', { class: 'loading-title' });
  const bar = h('progress', { class: 'progress', max: 1, 'aria-label': 'Progress' });
  const figures = h('p', { class: 'loading-figures' });
  const note = h(
    'p',
    { class: 'field-note' },
    'It is kept in this browser. A download that is cut goes on where it ended.',
  );
  const stop = h(
    'button',
    { type: 'button', class: 'button', id: `${prefix}cancel-load`, onclick: cancel },
    icon('close', 17),
    'Cancel',
  );
  let stage = '';
  phase.watch(now => {
    card.hidden = !(now.kind === 'loading' || now.kind === 'failed' || now.kind === 'lost');
    if (now.kind === 'loading') {
      if (!bar.isConnected || card.firstChild !== title)
        fill(card, title, bar, h('div', { class: 'row' }, figures, stop), note);
      const { progress } = now;
      title.textContent = `${progress ? stageOf(progress) : 'Opening'} ${now.wanted.name}`;
      // Only stages are read out; the bar can be asked.
      if (stage !== title.textContent) announce((stage = title.textContent));
      if (progress && progress.total > 0) bar.value = progress.loaded / progress.total;
      else bar.removeAttribute('value');
      figures.textContent = progress ? figuresOf(progress) : 'Asking for the file';
    } else {
      stage = '';
      if (now.kind === 'failed' || now.kind === 'lost') fill(card, ...trouble(now, prefix));
    }
  });
  return card;
}

function stageOf({ stage, stored }: Progress): string {
  return stage === 'download' && stored ? 'Reading' : STAGES[stage];
}

export function figuresOf(progress: Progress): string {
  if (progress.stage === 'compile') return `${count(progress.loaded)} of ${count(progress.total)} pipelines`;
  const parts = [`${bytes(progress.loaded)} of ${bytes(progress.total)}`];
  if (progress.bytesPerSecond > 0) parts.push(`${bytes(progress.bytesPerSecond)}/s`);
  if (progress.secondsLeft !== null && progress.loaded < progress.total)
    parts.push(`${duration(progress.secondsLeft)} left`);
  return parts.join(' · ');
}

function trouble(now: Phase & { kind: 'failed' | 'lost' }, prefix: string): Node[] {
  const { code, title, text } = explain(now.error);
  const { source, name } = now.wanted;
  const again =
    source === null
      ? []
      : [
          h(
            'button',
            {
              type: 'button',
              class: 'button primary',
              id: `${prefix}reopen`,
              onclick: () => void (now.kind === 'lost' ? reopen() : open(source, name)),
            },
            icon('again', 17),
            now.kind === 'lost' ? 'Open it again' : 'Try again',
          ),
        ];
  if (source !== null && (code === 'no-gpu' || code === 'device')) again.push(onCpu(source, name));
  return [
    h('h2', { class: 'loading-title' }, icon('warning'), title),
    h('p', { role: 'alert', class: 'loading-error' }, text),
    h(
      'div',
      { class: 'row' },
      h('span', { class: 'soft' }, name),
      h(
        'span',
        { class: 'buttons' },
        ...again,
        h('button', { type: 'button', class: 'button', onclick: () => go('models') }, 'Choose a model'),
      ),
    ),
  ];
}

function onCpu(source: Source, name: string): HTMLButtonElement {
  const run = () => {
    change({ device: 'cpu' });
    void open(source, name);
  };
  return h('button', { type: 'button', class: 'button', onclick: run }, 'Open it on the CPU');
}
