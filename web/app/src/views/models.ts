import { append, fill, h } from '../dom';
import { Selkie } from '../engine';
import { machine, usesGpu } from '../fits';
import { bytes, capital, count } from '../format';
import { report } from '../notices';
import { viewHead, type View } from '../router';
import { close, phase } from '../session';
import { loadingCard } from './loading';
import { refreshStored, stored, storedList, suggestedList } from './model-list';
import { opener } from './opener';

/** What runs, what lies here, what may be fetched. */
export function modelsView(): View {
  const here = h('p', { class: 'soft', id: 'machine' });
  machine.watch(() => fill(here, describeMachine()));
  const keepSection = h('section', {}, h('h2', {}, 'On this device'), storedList(), storageLine());
  stored.watch(models => (keepSection.hidden = models.length === 0));
  const element = h('div', {});
  append(element, [
    viewHead('Models', 'They run in this tab and are kept in this browser. Nothing that you write leaves it.'),
    loadingCard('models-'),
    openModel(),
    keepSection,
    h('section', {}, h('h2', {}, 'Suggestions'), here, suggestedList()),
    h('section', {}, h('h2', {}, 'Your own'), opener('models-')),
  ]);
  return { element, shown: () => void refreshStored() };
}

function describeMachine(): string {
  const { device } = machine.get();
  if (!device) return 'Looking at what this machine can do…';
  if (usesGpu(machine.get())) return `Models run on ${device.adapter!.name}.`;
  const simd = device.cpu.simd === 'relaxed' ? 'relaxed SIMD' : 'SIMD';
  if (!device.adapter) return `This browser offers no WebGPU: models run on the CPU, with ${simd} and one thread.`;
  if (device.adapter.software)
    return `The only adapter is software (${device.adapter.name}): models run on the CPU, with ${simd} and one thread.`;
  return `Models run on the CPU, as Settings say, with ${simd} and one thread.`;
}

/** What is open now, and the way to close it. */
function openModel(): HTMLElement {
  const section = h('section', { class: 'card', id: 'open-model' });
  phase.watch(now => {
    section.hidden = now.kind !== 'ready';
    if (now.kind !== 'ready') return;
    const { info } = now.model;
    const facts: [string, string][] = [
      ['Architecture', info.architecture],
      ['Runs on', info.backend === 'webgpu' ? info.device : 'the CPU, one thread'],
      ['Size', bytes(info.bytes)],
      ['Context', `${count(info.context)}${info.modelContext ? ` of at most ${count(info.modelContext)}` : ''} tokens`],
      ['Layers', describeLayers(info.schedule)],
      ['Vocabulary', count(info.vocabSize)],
    ];
    fill(
      section,
      h('h2', {}, info.name),
      info.fallback ? h('p', { class: 'soft' }, capital(info.fallback)) : null,
      h('dl', { class: 'facts' }, ...facts.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))),
      h(
        'div',
        { class: 'buttons' },
        h('button', { type: 'button', class: 'button', onclick: () => void close() }, 'Close it'),
      ),
    );
  });
  return section;
}

/** `28 mamba2, 4 attention`. */
export function describeLayers(schedule: string[]): string {
  const counts = new Map<string, number>();
  // What the engine calls cssd is Mamba-3 to everyone else.
  for (const kind of schedule.map(kind => kind.replace(/^cssd\b/, 'mamba3'))) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return [...counts].map(([kind, number]) => `${number} ${kind}`).join(', ');
}

function storageLine(): HTMLElement {
  const text = h('span', {});
  const button = h(
    'button',
    { type: 'button', class: 'link', onclick: () => void persist() },
    'Ask the browser to keep them',
  );
  const line = h('p', { class: 'soft storage' }, text, button);
  const persist = async () => {
    try {
      const kept = await Selkie.store.persist();
      fill(line, text, kept ? 'The browser will keep them.' : 'The browser may still remove them when room is short.');
    } catch (error) {
      report('The browser did not answer', error);
    }
  };
  stored.watch(models => {
    const { room } = machine.get();
    const sum = models.reduce((total, { have }) => total + have, 0);
    text.textContent = `${bytes(sum)} in use${room === null ? '' : `, ${bytes(room)} free`}. `;
  });
  return line;
}
