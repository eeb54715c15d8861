// Files that are dropped anywhere: a model is opened, a file of conversations imported.

import { byId } from './dom';
import { go } from './router';
import { open } from './session';
import { take } from './views/kept';

export function takeDrops(): void {
  const cover = byId('drop');
  const holdsFiles = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false;
  addEventListener('dragover', event => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    cover.hidden = false;
  });
  addEventListener('dragleave', event => {
    // Without a target it has left the window.
    if (event.relatedTarget === null) cover.hidden = true;
  });
  addEventListener('drop', event => {
    cover.hidden = true;
    if (!holdsFiles(event)) return;
    event.preventDefault();
    openFiles([...event.dataTransfer!.files]);
  });
}

function openFiles(files: File[]): void {
  const conversations = files.filter(({ name }) => name.endsWith('.selkie'));
  const models = files.filter(({ name }) => !name.endsWith('.selkie'));
  for (const file of conversations) void take(file);
  if (models.length === 0) return;
  go('chat');
  void open(models);
}
