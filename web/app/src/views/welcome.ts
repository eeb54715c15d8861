import { ask } from '../answer';
import { fill, h } from '../dom';
import { describeLayers } from './models';
import { machine, usesGpu } from '../fits';
import { bytes, capital } from '../format';
import type { ModelInfo } from '../engine';
import { phase, type Phase } from '../session';
import { stored, storedList, suggestedList } from './model-list';
import { opener } from './opener';

const QUESTIONS = [
  'Why is the sky blue?',
  'Write a short poem about the sea.',
  'Explain what a state-space model is, in a table.',
];
const BEGINNINGS = ['Once upon a time, by the sea,', 'The three most important ideas of physics are'];

/** What stands where no conversation does yet. */
export function welcome(): HTMLElement {
  const element = h('div', { class: 'welcome' });
  let kind = '';
  phase.watch(now => {
    // Progress does not rebuild it.
    if (kind === now.kind && kind !== 'ready') return;
    kind = now.kind;
    element.classList.toggle('calm', kind === 'ready');
    fill(element, ...contentOf(now));
  });
  return element;
}

function contentOf(now: Phase): Node[] {
  if (now.kind === 'ready') return ready(now.model.info);
  if (now.kind === 'loading') return [];
  return [hero(), choice()];
}

function hero(): HTMLElement {
  const where = h('span', {});
  machine.watch(now => {
    if (!now.device) where.textContent = '';
    else if (usesGpu(now)) where.textContent = ` It will run on ${now.device.adapter!.name}.`;
    else
      where.textContent =
        ' There is no GPU that it can use here. On the CPU a model of 145 MB writes some 15 to 30 tokens a second, a larger one fewer.';
  });
  return h(
    'header',
    { class: 'hero' },
    h('h1', {}, 'A language model, in this tab'),
    h(
      'p',
      {},
      'Choose one. It is fetched once, kept here, and answers on your own machine: offline, with nothing sent anywhere.',
      where,
    ),
  );
}

function choice(): HTMLElement {
  const kept = h('section', {}, h('h2', {}, 'On this device'), storedList(3));
  stored.watch(models => (kept.hidden = models.length === 0));
  return h(
    'div',
    { class: 'choice' },
    kept,
    h(
      'section',
      {},
      h('h2', {}, 'To begin with'),
      suggestedList(3),
      h('p', { class: 'more' }, h('a', { href: '#/models' }, 'More models')),
    ),
    h('section', {}, h('h2', {}, 'Your own'), opener()),
  );
}

function ready(info: ModelInfo): Node[] {
  if (!info.hasTokenizer) {
    return [
      h(
        'header',
        { class: 'hero' },
        h('h1', {}, `${info.name} is ready`),
        h(
          'p',
          {},
          'It has no tokenizer: it works on token ids rather than text. ',
          h('a', { href: '#/lab' }, 'Go to the lab'),
          ' to run it.',
        ),
      ),
    ];
  }
  const prompts = info.hasChatTemplate ? QUESTIONS : BEGINNINGS;
  const where = info.backend === 'webgpu' ? info.device : 'the CPU';
  return [
    h(
      'header',
      { class: 'hero' },
      h('h1', {}, info.hasChatTemplate ? 'What would you like to know?' : 'How does it begin?'),
      h('p', {}, `${info.name} runs on ${where}: ${bytes(info.bytes)}, ${describeLayers(info.schedule)}.`),
      info.hasChatTemplate ? null : h('p', {}, 'It has no chat template: it continues your text.'),
      info.fallback ? h('p', { class: 'soft', id: 'fallback' }, capital(info.fallback)) : null,
    ),
    h(
      'div',
      { class: 'prompts' },
      ...prompts.map(text => h('button', { type: 'button', class: 'prompt', onclick: () => void ask(text) }, text)),
    ),
  ];
}
