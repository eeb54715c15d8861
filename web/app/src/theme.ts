import { settings, type Theme } from './settings';

/** Follows the setting; where it says `auto`, the style sheet follows the system. */
export function applyTheme(): void {
  settings.watch(({ theme }) => {
    if (theme === 'auto') delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = theme;
  });
}

export function isDark(): boolean {
  const { theme } = settings.get();
  return theme === 'dark' || (theme === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
}

export function nextTheme(theme: Theme): Theme {
  return theme === 'auto' ? 'light' : theme === 'light' ? 'dark' : 'auto';
}
