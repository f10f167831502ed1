// The item in the status bar: quota line and time left, a link to the console.
import { quotaBar } from './quota.js';
import { clockTime, quotaShort, quotaWords } from './words.js';

const STYLE = `
.carrel-status, .carrel-queue { all: unset; box-sizing: border-box; display: flex; align-items: center; gap: 6px;
  height: 100%; padding: 0 6px; cursor: pointer; white-space: nowrap; color: inherit;
  font-variant-numeric: tabular-nums; --carrel-quota: var(--jp-brand-color1, #1976d2);
  --carrel-line: var(--jp-ui-font-color1, #333); }
.carrel-status:hover, .carrel-queue:hover { background: var(--jp-layout-color3, #ddd); }
.carrel-status:focus-visible, .carrel-queue:focus-visible { outline: 2px solid var(--jp-brand-color1, #1976d2);
  outline-offset: -2px; }
.carrel-status[data-level=warn] { background: #f2a93b; color: #1b1b1b;
  --carrel-quota: #1b1b1b; --carrel-line: #1b1b1b; }
.carrel-status[data-level=last] { background: #c62828; color: #fff;
  font-weight: 600; --carrel-quota: #fff; --carrel-line: #fff; }
.carrel-stale { font-style: italic; }
.carrel-status > span + span { padding-left: 8px; border-left: 1px solid currentColor; }
.carrel-quota-free { fill: var(--carrel-line); opacity: .16; }
.carrel-quota-used { fill: var(--carrel-quota); }
.carrel-quota-waiting { fill: none; stroke: var(--carrel-quota); stroke-dasharray: 2 2; }
.carrel-quota-mark { stroke: var(--carrel-line); stroke-width: 1.5; }
`;

/** When the scheduler was last heard, if it is silent: by its stream, or by this workspace. */
function staleWords(view) {
  const since = view.unheard_since || view.silent_since;
  return since || view.trouble ? `not live${since ? `: last heard at ${clockTime(since)}` : ''}` : '';
}

/** The element and the way to fill it; `open` is called when it is clicked. */
export function statusItem(open) {
  const style = document.createElement('style');
  style.textContent = STYLE;
  document.head.append(style);
  const item = document.createElement('button');
  item.className = 'carrel-status';
  item.type = 'button';
  item.hidden = true;
  item.addEventListener('click', open);
  let shown = '';

  function update(view, stop) {
    const words = view.project ? quotaWords(view.project) : '';
    const left = stop?.short ?? (view.project ? view.project.name : '');
    const old = staleWords(view);
    const key = JSON.stringify([words, left, stop?.level, view.trouble, old]);
    if (key === shown) {
      return;
    }
    shown = key;
    item.hidden = !view.project && !stop;
    item.dataset.level = stop?.level ?? 'calm';
    item.title = [
      stop?.sentence,
      view.project && `${view.project.name}: ${words}`,
      old && `What is shown may be old: ${old}.`,
      view.trouble,
      'Click to open the console.'
    ]
      .filter(Boolean)
      .join('\n');
    item.setAttribute('aria-label', [old, left, words].filter(Boolean).join('. '));
    const text = document.createElement('span');
    text.textContent = left;
    const quota = document.createElement('span');
    quota.textContent = view.project ? quotaShort(view.project) : '';
    const stale = document.createElement('span');
    stale.className = 'carrel-stale';
    stale.textContent = old;
    item.replaceChildren(...(view.project ? [quotaBar(view.project, 56, 12), quota] : []), text, ...(old ? [stale] : []));
  }

  return { element: item, update };
}
