// The live table of trainings.
import { node, progressOf, setSentence, sinceWords, stateChip, tellShown, troubleLine } from './parts.js';

const COLUMNS = ['Name', 'Project', 'State', 'GPUs', 'Progress', 'Why'];
const NUMBERS = ['GPUs', 'Progress'];
const NONE = 'No trainings yet: begin a cell with %%train to send it away.';

function heading(name) {
  return node('th', NUMBERS.includes(name) ? 'carrel-number' : '', { scope: 'col' }, name);
}

function row(job, now) {
  const progress = progressOf(job, now);
  return node(
    'tr',
    '',
    { 'data-phase': job.phase },
    node('th', 'carrel-name', { scope: 'row' }, job.name),
    node('td', '', {}, job.project),
    node('td', '', {}, stateChip(job), ` ${sinceWords(job, now)}`),
    node('td', 'carrel-number', {}, job.gpus.replace(/ GPUs?$/, '').replace('no', '0')),
    node('td', 'carrel-number', {}, progress ? progress.words : ''),
    whyCell(job)
  );
}

function whyCell(job) {
  const cell = node('td', 'carrel-why');
  setSentence(cell, [job.place && `Place ${job.place}.`, job.reason].filter(Boolean).join(' '));
  cell.hidden = false;
  return cell;
}

function render({ model, el }) {
  const body = node('tbody');
  const empty = node('p', 'carrel-empty', {}, NONE);
  const table = node(
    'table',
    'carrel-table',
    {},
    node('caption', '', {}, 'Your trainings'),
    node('thead', '', {}, node('tr', '', {}, ...COLUMNS.map(heading))),
    body
  );
  const root = node('section', 'carrel-view', { 'aria-label': 'Your trainings' }, table, empty, troubleLine(model));
  let late = false;

  function draw() {
    late = root.matches(':hover'); // rows do not jump below the pointer
    if (late) {
      return;
    }
    const jobs = model.get('jobs');
    const now = Date.now() / 1000;
    table.hidden = !jobs.length;
    empty.hidden = Boolean(jobs.length);
    body.replaceChildren(...jobs.map(job => row(job, now)));
  }

  root.addEventListener('pointerleave', () => late && draw());
  model.on('change:jobs', draw);
  draw();
  el.append(root);
  const timer = setInterval(() => model.get('jobs').some(job => !job.over) && draw(), 1000);
  const hidden = tellShown(model);
  return () => {
    clearInterval(timer);
    model.off('change:jobs', draw);
    hidden();
  };
}

export default { render };
