import { append, fill, h, newId } from '../dom';
import { explain } from '../errors';
import { isHybrid, made, SAMPLE } from '../hybrid';
import { viewHead, type View } from '../router';
import { create, model, phase } from '../session';
import { labRun } from './lab-run';
import { describeLayers } from './models';

const KEY = 'selkie.lab';

/** Hybrids of one's own: made from a configuration, run on token ids, written and read. */
export function labView(): View {
  const run = h('div', {});
  phase.watch(() => {
    const opened = model();
    fill(run, isHybrid(opened) ? labRun(opened) : null);
  });
  const element = h('div', {});
  append(element, [
    viewHead(
      'Lab',
      'A small hybrid with fresh weights: state-space and attention layers as a configuration says. Equal seeds give equal weights.',
    ),
    configuration(),
    run,
  ]);
  return { element };
}

function configuration(): HTMLElement {
  const id = newId();
  const note = newId();
  const input = h('textarea', { id, class: 'field code', rows: 16, spellcheck: 'false', 'aria-describedby': note });
  input.value = kept();
  const wrong = h('p', { id: note, class: 'field-note', role: 'status' });
  const button = h('button', { type: 'submit', class: 'button primary', id: 'create-hybrid' }, 'Make it');
  const again = h('button', { type: 'button', class: 'button', onclick: () => (input.value = SAMPLE) }, 'The example');
  const form = h(
    'form',
    { class: 'card lab' },
    h('label', { for: id, class: 'label' }, 'Configuration (JSON)'),
    input,
    wrong,
    h('div', { class: 'buttons' }, button, again),
  );
  form.addEventListener('submit', event => {
    event.preventDefault();
    const fault = faultOf(input.value);
    input.setAttribute('aria-invalid', String(fault !== null));
    fill(wrong, fault);
    if (fault !== null) return;
    keep(input.value);
    made.config = input.value;
    void create(input.value, 'a hybrid');
  });
  phase.watch(now => {
    button.disabled = now.kind === 'loading';
    if (now.kind === 'failed' && now.wanted.source === null) fill(wrong, explain(now.error).text);
    else if (now.kind === 'ready' && isHybrid(now.model))
      fill(wrong, `Made: ${describeLayers(now.model.info.schedule)}.`);
  });
  return form;
}

function faultOf(text: string): string | null {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function kept(): string {
  try {
    return localStorage.getItem(KEY) ?? SAMPLE;
  } catch {
    return SAMPLE;
  }
}

function keep(text: string): void {
  try {
    localStorage.setItem(KEY, text);
  } catch {
    // Storage is refused: it stays as long as the tab does.
  }
}
