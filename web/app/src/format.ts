// Numbers as people read them.

/** `145 MB`: powers of ten, three digits. */
export function bytes(count: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  let value = count;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : digits(value)} ${units[unit]}`;
}

/** Three digits that count. */
export function digits(value: number): string {
  if (!Number.isFinite(value)) return '–';
  return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}

export function count(value: number): string {
  return value.toLocaleString('en');
}

/** `3 s`, `2 min 10 s`, `1 h 5 min`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** `14:05` today, else a date. */
export function when(milliseconds: number): string {
  const date = new Date(milliseconds);
  const today = new Date().toDateString() === date.toDateString();
  return today
    ? date.toLocaleTimeString('en', { hour: '2-digit', minute: '2-digit', hour12: false })
    : date.toLocaleDateString('en', { day: 'numeric', month: 'short', year: 'numeric' });
}

/** `1.2e-7`, for errors and tolerances. */
export function scientific(value: number): string {
  if (value === 0) return '0';
  return Number.isFinite(value) ? value.toExponential(1) : String(value);
}

/** A sentence that another program wrote, as one that stands alone. */
export function capital(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;
}
