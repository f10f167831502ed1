// The live table of somebody's work; rows stay what they are, only what changed is drawn.
import { actions } from './actions.js';
import { nameOf, node, pageOf, progressOf, setSentence, setText, sinceWords, stateChip, tellShown, troubleLine } from './parts.js';

const COLUMNS = ['Name', 'Type', 'Project', 'State', 'GPUs', 'Progress', 'Why'];
const NUMBERS = ['GPUs', 'Progress'];
const NONE = 'No jobs yet: begin a cell with %%train to send it away.';

function heading(name) {
  return node('th', NUMBERS.includes(name) ? 'carrel-number' : '', { scope: 'col' }, name);
}

/** A model of one row, as buttons want it. */
function rowModel(model, job) {
  return { get: () => job(), send: content => model.send(content) };
}

/** One row: `{ element, update }`; `steer` adds its buttons, `link` makes its name an address. */
function tableRow(model, first, steer, link) {
  let job = first;
  let phase = '';
  const name = node('th', 'carrel-name', { scope: 'row' });
  const type = node('td', 'carrel-soft');
  const project = node('td');
  const state = node('span');
  const since = node('span', 'carrel-soft');
  const gpus = node('td', 'carrel-number');
  const progress = node('td', 'carrel-number');
  const why = node('td', 'carrel-why');
  const element = node('tr', '', {}, name, type, project, node('td', '', {}, state, ' ', since), gpus, progress, why);
  const steering = steer ? actions(rowModel(model, () => job)) : null;
  if (steering) {
    element.append(node('td', 'carrel-act', {}, steering.bar, steering.problem));
  }
  name.append(nameOf(job, link?.(job)));
  setText(type, job.type);
  setText(project, job.project);

  function tick(now) {
    setText(since, sinceWords(job, now));
    const words = progressOf(job, now)?.words ?? '';
    if (progress.textContent !== words) {
      progress.textContent = words;
    }
  }

  function update(next, now) {
    job = next;
    if (phase !== job.phase) {
      phase = job.phase;
      element.dataset.phase = phase;
      state.replaceChildren(stateChip(job));
      steering?.update();
    }
    gpus.textContent = job.gpus.replace(/ GPUs?$/, '').replace('no', '0');
    setSentence(why, [job.place && `Place ${job.place}.`, job.reason].filter(Boolean).join(' '));
    why.hidden = false;
    tick(now);
  }

  update(first, Date.now() / 1000);
  return { element, update, tick };
}

/** The table of `model.get('jobs')`. `options`: `title`, `none`, `steer`, `link`. */
export function jobsTable(model, options = {}) {
  const { title = 'Your jobs', none = NONE, steer = false, link = null } = options;
  const body = node('tbody');
  const empty = node('p', 'carrel-empty', {}, none);
  const heads = COLUMNS.map(heading);
  if (steer) {
    heads.push(node('td', '', {}));
  }
  const table = node(
    'table', 'carrel-table', {},
    node('caption', '', {}, title), node('thead', '', {}, node('tr', '', {}, ...heads)), body
  );
  const root = node('section', 'carrel-view', { 'aria-label': title }, table, empty, troubleLine(model));
  const rows = new Map();
  let late = false;

  const keyOf = job => `${job.project}/${job.name}/${job.queued_at && job.uid}`;

  function place(jobs) {
    const wanted = jobs.map(job => rows.get(keyOf(job)).element);
    if (wanted.length !== body.children.length || wanted.some((element, index) => element !== body.children[index])) {
      body.replaceChildren(...wanted);
    }
  }

  function draw() {
    const jobs = model.get('jobs');
    const now = Date.now() / 1000;
    const keys = new Set(jobs.map(keyOf));
    for (const job of jobs) {
      const known = rows.get(keyOf(job));
      if (known) {
        known.update(job, now);
      } else {
        rows.set(keyOf(job), tableRow(model, job, steer, link));
      }
    }
    [...rows.keys()].filter(key => !keys.has(key)).forEach(key => rows.delete(key));
    late = table.matches(':hover') || table.contains(document.activeElement);
    if (!late || body.children.length !== jobs.length) {
      place(jobs); // rows do not change places below the pointer
    }
    table.hidden = !jobs.length;
    empty.hidden = Boolean(jobs.length);
  }

  root.addEventListener('pointerleave', () => late && draw());
  model.on('change:jobs', draw);
  draw();
  const timer = setInterval(() => {
    const now = Date.now() / 1000;
    model.get('jobs').filter(job => !job.over).forEach(job => rows.get(keyOf(job))?.tick(now));
  }, 1000);
  return {
    root,
    end() {
      clearInterval(timer);
      model.off('change:jobs', draw);
    }
  };
}

function render({ model, el }) {
  const table = jobsTable(model, { link: job => pageOf(model.get('console_url'), job) });
  el.append(table.root);
  const hidden = tellShown(model, table.root);
  return () => {
    table.end();
    hidden();
  };
}

export default { render };
