// The page: what it is made of, and in which order it comes.

import { running, stop } from './answer';
import { takeDrops } from './drop';
import { byId } from './dom';
import { lookAround } from './fits';
import { openLibrary } from './library';
import { keepInTime } from './memory';
import { report } from './notices';
import { keepPage } from './offline';
import { startRouter } from './router';
import { open } from './session';
import { applyTheme } from './theme';
import { fillBar } from './views/bar';
import { chatView } from './views/chat';
import { conformanceView } from './views/conformance';
import { startDrawer } from './views/drawer';
import { labView } from './views/lab';
import { refreshStored } from './views/model-list';
import { modelsView } from './views/models';
import { settingsView } from './views/settings';
import { fillSidebar } from './views/sidebar';
import { stateView } from './views/state';

function start(): void {
  applyTheme();
  fillSidebar();
  fillBar();
  startDrawer();
  startRouter([
    { id: 'chat', title: 'Chat', make: chatView },
    { id: 'models', title: 'Models', make: modelsView },
    { id: 'settings', title: 'Settings', make: settingsView },
    { id: 'conformance', title: 'Conformance', make: conformanceView },
    { id: 'state', title: 'State', make: stateView },
    { id: 'lab', title: 'Lab', make: labView },
  ]);
  byId('app').classList.add('ready');
  takeDrops();
  keepInTime();
  addEventListener('keydown', event => {
    if (event.key === 'Escape' && running.get() && !document.querySelector('dialog[open], :popover-open')) stop();
  });
  void openLibrary();
  void startEngine();
}

/** After the page is drawn: the package takes longer. */
async function startEngine(): Promise<void> {
  await keepPage();
  const wanted = new URLSearchParams(location.search).get('model');
  if (wanted) void open(wanted);
  void refreshStored();
  try {
    await lookAround();
  } catch (error) {
    report('What this machine can do is not known', error);
  }
}

start();
