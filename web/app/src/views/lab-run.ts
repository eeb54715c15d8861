import { download } from '../copy';
import { fill, h, newId, type Child } from '../dom';
import type { Hybrid, Sampling } from '../engine';
import { bytes, count, digits } from '../format';
import { idsOf, likeliest, made } from '../hybrid';
import { icon } from '../icons';
import { notify, report } from '../notices';
import { phase } from '../session';
import { clearTrace, sample } from '../trace';

/** Tokens between two samples of the state. */
const EVERY = 2;

/** What a hybrid that is open can be asked. */
export function labRun(hybrid: Hybrid): HTMLElement {
  return h('div', { class: 'lab-run' }, runSection(hybrid), fileSection(hybrid), parameterSection(hybrid));
}

function runSection(hybrid: Hybrid): HTMLElement {
  const note = newId();
  const ids = h('input', {
    id: 'lab-ids',
    type: 'text',
    class: 'field',
    value: '1, 2, 3, 4',
    inputmode: 'numeric',
    'aria-describedby': note,
  });
  const wrong = h('p', { id: note, class: 'field-note', role: 'status' });
  const result = h('div', { id: 'lab-result', role: 'status' });
  const number = (id: string, label: string, value: number, step: number, max: number, min = 0) => {
    const input = h('input', { id, type: 'number', class: 'field number', value, min, max, step });
    return { input, element: h('div', {}, h('label', { for: id, class: 'field-note' }, label), input) };
  };
  const n = number('lab-n', 'New tokens', 16, 1, 4096, 1);
  const temperature = number('lab-temperature', 'Temperature', 1, 0.05, 5);
  const topK = number('lab-top-k', 'Top-k', 50, 1, 1000, 1);
  const topP = number('lab-top-p', 'Top-p', 1, 0.01, 1);

  const act = (run: (ids: Uint32Array) => Promise<Child[]>) => async () => {
    const found = idsOf(ids.value, hybrid.info.vocabSize);
    const fault = typeof found === 'string' ? found : null;
    ids.setAttribute('aria-invalid', String(fault !== null));
    fill(wrong, fault);
    if (typeof found === 'string') return;
    try {
      fill(result, ...(await run(found)));
    } catch (error) {
      report('The hybrid did not run', error);
    }
  };
  const forward = act(async found => {
    const logits = await hybrid.forward(found, 1, found.length);
    return [
      h('h3', {}, 'Likeliest next tokens'),
      likeliestTable(logits.subarray(logits.length - hybrid.info.vocabSize)),
    ];
  });
  const generate = act(async found => {
    const options = {
      temperature: Number(temperature.input.value),
      topK: Number(topK.input.value),
      topP: Number(topP.input.value),
    };
    const began = performance.now();
    const written = await hybrid.generate(found, Number(n.input.value), options);
    const seconds = (performance.now() - began) / 1000;
    return [
      h('h3', {}, 'Tokens'),
      h('p', { class: 'ids' }, [...written].join(', ')),
      h('p', { class: 'soft' }, `${digits(seconds)} s`),
    ];
  });
  const watch = act(async found => {
    const options = {
      temperature: Number(temperature.input.value),
      topK: Number(topK.input.value),
      topP: Number(topP.input.value),
    };
    const written = await runWatched(hybrid, [...found], Number(n.input.value), options);
    return [
      h('h3', {}, 'Tokens'),
      h('p', { class: 'ids' }, written.join(', ')),
      h('p', {}, h('a', { href: '#/state' }, 'See the state')),
    ];
  });
  return h(
    'section',
    { class: 'card lab' },
    h('h2', {}, 'Run'),
    h('label', { for: 'lab-ids', class: 'label' }, `Token ids, below ${count(hybrid.info.vocabSize)}`),
    ids,
    wrong,
    h('div', { class: 'numbers' }, n.element, temperature.element, topK.element, topP.element),
    h(
      'div',
      { class: 'buttons' },
      h(
        'button',
        { type: 'button', class: 'button primary', id: 'lab-generate', onclick: () => void generate() },
        'Generate',
      ),
      h('button', { type: 'button', class: 'button', id: 'lab-forward', onclick: () => void forward() }, 'Forward'),
      hybrid.info.recurrent
        ? h(
            'button',
            { type: 'button', class: 'button', id: 'lab-watch', onclick: () => void watch() },
            'Generate and watch the state',
          )
        : null,
    ),
    result,
  );
}

/** A few tokens at a time, with a sample of the state after each. */
async function runWatched(hybrid: Hybrid, ids: number[], count: number, sampling: Sampling): Promise<number[]> {
  clearTrace();
  await hybrid.state.clear();
  for (let left = count; left > 0; left -= EVERY) {
    const result = await hybrid.complete(ids, { ...sampling, maxTokens: Math.min(left, EVERY), ignoreEos: true });
    if (result.newTokens === 0) break;
    ids.push(...result.ids);
    await sample(hybrid);
  }
  return ids;
}

function likeliestTable(logits: Float32Array): HTMLElement {
  const rows = likeliest(logits, 5).map(({ id, logit, probability }) =>
    h(
      'tr',
      {},
      h('th', { scope: 'row' }, id),
      h('td', {}, logit.toFixed(4)),
      h('td', {}, `${(100 * probability).toFixed(2)} %`),
    ),
  );
  const heads = ['Id', 'Logit', 'Probability'].map(head => h('th', { scope: 'col' }, head));
  return h('table', { class: 'figures-table' }, h('thead', {}, h('tr', {}, ...heads)), h('tbody', {}, ...rows));
}

function fileSection(hybrid: Hybrid): HTMLElement {
  const option = (id: string, text: string, checked: boolean) => {
    const input = h('input', { id, type: 'checkbox', checked });
    return { input, element: h('label', { class: 'check', for: id }, input, h('span', {}, text)) };
  };
  // Of a file that was opened the visitor has it.
  const now = phase.get();
  const config = now.kind === 'ready' && now.wanted.source === null ? made.config : null;
  const fp16 = option('lab-fp16', 'Half precision', false);
  const trailer = option('lab-trailer', 'With names and shapes at its end', true);
  const write = async () => {
    try {
      const file = await hybrid.export({ fp16: fp16.input.checked, trailer: trailer.input.checked });
      download('model.mbjs', new Blob([file as Uint8Array<ArrayBuffer>]));
    } catch (error) {
      report('The hybrid could not be written', error);
    }
  };
  const input = h('input', {
    type: 'file',
    id: 'lab-import',
    class: 'unseen',
    tabindex: -1,
    accept: '.mbjs,.bin',
    'aria-label': 'An MBJS file',
  });
  input.addEventListener('change', async () => {
    const file = input.files?.[0];
    input.value = '';
    if (!file) return;
    try {
      await hybrid.import(await file.arrayBuffer());
      notify({
        kind: 'info',
        key: 'lab-import',
        title: 'Weights taken over',
        text: `${file.name}, ${bytes(file.size)}`,
      });
    } catch (error) {
      report('The weights could not be taken over', error);
    }
  });
  return h(
    'section',
    { class: 'card lab' },
    h('h2', {}, 'MBJS file'),
    h('div', { class: 'numbers' }, fp16.element, trailer.element),
    h(
      'div',
      { class: 'buttons' },
      h(
        'button',
        { type: 'button', class: 'button', id: 'lab-export', onclick: () => void write() },
        icon('download', 17),
        'Export',
      ),
      config !== null
        ? h(
            'button',
            {
              type: 'button',
              class: 'button',
              id: 'lab-config',
              onclick: () => download('config.json', new Blob([config])),
            },
            icon('download', 17),
            'Configuration',
          )
        : null,
      h(
        'button',
        { type: 'button', class: 'button', onclick: () => input.click() },
        icon('upload', 17),
        'Take weights from a file',
      ),
      input,
    ),
    h('p', { class: 'field-note' }, 'A file fits where it has the same configuration.'),
  );
}

/** Listed once asked for: all weights come over with them. */
function parameterSection(hybrid: Hybrid): HTMLElement {
  const body = h('div', {});
  const details = h('details', {}, h('summary', {}, 'Parameters'), body);
  details.addEventListener('toggle', async () => {
    if (!details.open || body.childElementCount > 0) return;
    try {
      const all = await hybrid.parameters();
      const sum = all.reduce((total, { values }) => total + values.length, 0);
      const rows = all.map(({ name, shape, values }) =>
        h(
          'tr',
          {},
          h('th', { scope: 'row' }, name),
          h('td', {}, shape.join(' × ')),
          h('td', { class: 'align-right' }, count(values.length)),
        ),
      );
      fill(
        body,
        h('p', { class: 'soft' }, `${count(all.length)} with ${count(sum)} numbers`),
        h(
          'div',
          { class: 'table', tabindex: 0, role: 'region', 'aria-label': 'Parameters' },
          h('table', { class: 'figures-table' }, h('tbody', {}, ...rows)),
        ),
      );
    } catch (error) {
      report('The parameters cannot be listed', error);
    }
  });
  return h('section', { class: 'card lab' }, details);
}
