// The conformance view as a text, to be pasted into a report.

import type { Check, DeviceReport, ModelInfo } from './engine';
import { bytes, digits, scientific } from './format';

export function bandwidth(perSecond: number | null): string {
  return perSecond === null
    ? 'not measured'
    : perSecond < 1e12
      ? `${digits(perSecond / 1e9)} GB/s`
      : `${digits(perSecond / 1e12)} TB/s`;
}

export function dispatch(seconds: number | null): string {
  return seconds === null ? 'not measured' : `${digits(seconds * 1e6)} µs`;
}

export function textReport(device: DeviceReport | null, model: ModelInfo | null, checks: Check[]): string {
  const lines = ['Selkie conformance', new Date().toISOString(), ''];
  if (device) lines.push(...deviceLines(device), '');
  if (model) lines.push(...modelLines(model), '');
  const wrong = checks.filter(({ ok }) => !ok).length;
  if (checks.length > 0) lines.push(`Checks: ${checks.length - wrong} of ${checks.length} within their tolerance`);
  for (const check of checks) {
    lines.push(
      `${check.ok ? 'ok   ' : 'WRONG'} ${check.name}  error ${scientific(check.error)}  tolerance ${scientific(check.tolerance)}` +
        `  ${digits(check.milliseconds)} ms${check.detail ? `  ${check.detail}` : ''}`,
    );
  }
  return `${lines.join('\n').trimEnd()}\n`;
}

function deviceLines({ adapter, cpu, userAgent }: DeviceReport): string[] {
  const lines = [`Browser: ${userAgent}`, `CPU: wasm ${cpu.simd}`];
  if (!adapter) return [...lines, 'Adapter: none'];
  return [
    ...lines,
    `Adapter: ${adapter.name}${adapter.software ? ' (software)' : ''}`,
    `Read bandwidth: ${bandwidth(adapter.readBandwidth)}`,
    `One dispatch: ${dispatch(adapter.dispatchSeconds)}`,
    `Features: ${adapter.features.join(', ') || 'none'}`,
    `Limits: ${Object.entries(adapter.limits)
      .map(([name, value]) => `${name} ${value}`)
      .join(', ')}`,
  ];
}

function modelLines(info: ModelInfo): string[] {
  return [
    `Model: ${info.name} (${info.architecture}, ${info.layers} layers, ${bytes(info.bytes)}, id ${info.id})`,
    `Runs on: ${info.backend === 'webgpu' ? info.device : `CPU, ${info.device}`}${info.fallback ? ` – ${info.fallback}` : ''}`,
  ];
}
