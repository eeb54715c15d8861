import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative, resolve, sep } from 'node:path';

/**
 * Writes `sw.js`, the service worker that makes the page work offline, once everything else is built: what it keeps is
 * what lies in the folder.
 *
 * @returns {import('vite').Plugin}
 */
export function precache() {
  let outDir = '';
  let template = '';
  return {
    name: 'selkie-precache',
    apply: 'build',
    configResolved(config) {
      outDir = resolve(config.root, config.build.outDir);
      template = join(config.root, 'sw.js');
    },
    closeBundle() {
      const files = readdirSync(outDir, { recursive: true, withFileTypes: true })
        .filter(entry => entry.isFile() && entry.name !== 'sw.js' && !entry.name.endsWith('.map'))
        .map(entry => relative(outDir, join(entry.parentPath, entry.name)).split(sep).join('/'))
        .sort();
      const hash = createHash('sha256');
      for (const file of files) hash.update(file).update(readFileSync(join(outDir, file)));
      // There are two wasm files of which a visitor needs one: they are kept when they are used.
      const early = files.filter(file => !file.endsWith('.wasm'));
      const late = files.filter(file => file.endsWith('.wasm'));
      const text = readFileSync(template, 'utf8')
        .replace("'VERSION'", JSON.stringify(hash.digest('hex').slice(0, 16)))
        .replace("['EARLY']", JSON.stringify(early))
        .replace("['LATE']", JSON.stringify(late));
      writeFileSync(join(outDir, 'sw.js'), text);
    },
  };
}

/**
 * The development server puts styles inline and talks over a socket, which the page's policy forbids.
 *
 * @returns {import('vite').Plugin}
 */
export function looseInDevelopment() {
  return {
    name: 'selkie-loose-in-development',
    apply: 'serve',
    transformIndexHtml: (html, context) =>
      context.server ? html.replace(/<meta\s+http-equiv="Content-Security-Policy"[^>]*>/, '') : html,
  };
}
