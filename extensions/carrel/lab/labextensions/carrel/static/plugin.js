// The plugin: asks this workspace's server for its limits and shows them.
import { comingStop } from './limits.js';
import { ask } from './server.js';
import { statusItem } from './status.js';
import { stopWarning } from './warning.js';

const SEEN_SECONDS = 1;
const HIDDEN_SECONDS = 15;
const TICK_SECONDS = 1;

/** `apputils`, `statusbar` and `widgets` are JupyterLab's modules; Notebook has no status bar. */
export function makePlugin({ apputils, statusbar, widgets }) {
  return {
    id: 'carrel:limits',
    description: 'Shows when this workspace stops and why, and warns before it does.',
    autoStart: true,
    optional: statusbar ? [statusbar.IStatusBar] : [],
    activate: (app, statusBar) => {
      const limits = watchLimits(apputils.Notification);
      if (statusBar) {
        const node = document.createElement('div');
        node.append(limits.element);
        statusBar.registerStatusItem('carrel:limits', {
          item: new widgets.Widget({ node }),
          align: 'right',
          rank: 1000
        });
      }
      void app.restored.then(limits.start);
    }
  };
}

function watchLimits(notification) {
  let view = null;
  let skew = 0;
  let heardAt = 0;
  let timer = null;
  const item = statusItem(() => {
    if (view?.console_url) {
      window.open(view.console_url, '_blank', 'noopener');
    }
  });
  const warning = stopWarning(notification, async () => take(await ask('extend', 'POST')));

  function take(answer) {
    view = answer;
    heardAt = Date.now();
    skew = Date.now() / 1000 - answer.now;
    show();
    return answer;
  }

  function show() {
    if (view) {
      const stop = comingStop(view, Date.now() / 1000 - skew, skew);
      item.update(view, stop);
      warning.update(view, stop);
    }
  }

  async function poll() {
    clearTimeout(timer);
    try {
      take(await ask('limits'));
    } catch (error) {
      if (error.status === 404) {
        return; // this server has no scheduler: nothing to show, now or later
      }
      if (view) {
        view = { ...view, unheard_since: view.unheard_since ?? heardAt / 1000 };
        show();
      }
    }
    timer = setTimeout(poll, 1000 * (document.hidden ? HIDDEN_SECONDS : SEEN_SECONDS));
  }

  document.addEventListener('visibilitychange', () => !document.hidden && timer && void poll());
  return {
    element: item.element,
    start: () => {
      setInterval(show, TICK_SECONDS * 1000);
      void poll();
    }
  };
}
