// The table of an experiment's trials; its columns sort.
import { duration } from './words.js';
import { button } from './actions.js';
import { node, setText, valueWords } from './parts.js';

const FIRST_ROWS = 20;
const TRIAL_STATES = {
  waiting: ['pending', '◷', 'Pending'],
  running: ['running', '▶', 'Running'],
  completed: ['succeeded', '✔', 'Completed'],
  pruned: ['stopped', '✂', 'Pruned'],
  failed: ['failed', '✖', 'Failed'],
  stopped: ['stopped', '◼', 'Stopped']
};

function told(value) {
  return typeof value === 'number' ? valueWords(value) : String(value ?? '');
}

function columns(trials, search) {
  const names = [...new Set(trials.flatMap(trial => Object.keys(trial.parameters)))];
  return [
    { id: 'number', title: 'Trial', number: true, of: trial => trial.number },
    { id: 'state', title: 'State', of: trial => trial.state },
    { id: 'value', title: search.metric, number: true, of: trial => trial.value },
    ...names.map(name => ({
      id: `p ${name}`, title: name, number: true, of: trial => trial.parameters[name]
    })),
    { id: 'seconds', title: 'Took', number: true, of: trial => trial.seconds },
    ...(trials.some(trial => trial.error) ? [{ id: 'error', title: 'Why', of: trial => trial.error }] : [])
  ];
}

function compare(a, b) {
  if (a === b) {
    return 0;
  }
  if (a === null || a === undefined) {
    return 1;
  }
  if (b === null || b === undefined) {
    return -1;
  }
  return a < b ? -1 : 1;
}

function cell(column, trial) {
  if (column.id === 'number') {
    return node('th', 'carrel-number', { scope: 'row' }, String(trial.number));
  }
  if (column.id === 'state') {
    const [phase, icon, word] = TRIAL_STATES[trial.state] ?? ['pending', '•', trial.state];
    const sign = node('span', 'carrel-icon', { 'aria-hidden': 'true' }, icon);
    return node('td', '', {}, node('span', 'carrel-state', { 'data-phase': phase }, sign, ` ${word}`));
  }
  if (column.id === 'error') {
    return node('td', 'carrel-why', {}, trial.error);
  }
  const value = column.of(trial);
  const text = column.id === 'seconds' ? (value === null ? '' : duration(value)) : told(value);
  return node('td', 'carrel-number', {}, text);
}

/** `{ place, update, drawn }`: the table in a place that scrolls; `pick` hears of rows. */
export function trialTable(model, pick) {
  const caption = node('caption', '', {}, 'Trials');
  const head = node('thead');
  const body = node('tbody');
  const table = node('table', 'carrel-table', {}, caption, head, body);
  const more = button('', () => ((all = !all), draw()));
  const scroll = node('div', 'carrel-scroll', { tabindex: 0, role: 'region', 'aria-label': 'Trials' }, table);
  const place = node('div', 'carrel-trials', {}, scroll, more);
  const empty = node('p', 'carrel-empty', {}, 'No trial has begun yet.');
  let sorted = { id: 'number', down: true };
  let all = false;
  let late = false;
  let titles = '';
  place.append(empty);

  function heading(column) {
    const here = column.id === sorted.id;
    const sort = here ? (sorted.down ? 'descending' : 'ascending') : 'none';
    const press = node('button', 'carrel-sort', { type: 'button' }, column.title);
    press.addEventListener('click', () => {
      sorted = { id: column.id, down: here ? !sorted.down : false };
      titles = '';
      draw();
      [...head.querySelectorAll('button')].find(one => one.textContent === column.title)?.focus();
    });
    return node('th', column.number ? 'carrel-number' : '', { scope: 'col', 'aria-sort': sort }, press);
  }

  function row(known, trial, best) {
    const made = node(
      'tr', trial.number === best ? 'carrel-best-row' : '', { 'data-number': trial.number },
      ...known.map(column => cell(column, trial))
    );
    made.addEventListener('pointerenter', () => pick(trial.number));
    return made;
  }

  function draw() {
    const trials = model.get('trials');
    const search = model.get('search');
    const known = columns(trials, search);
    const key = JSON.stringify([known.map(column => column.title), sorted]);
    if (key !== titles) {
      titles = key;
      head.replaceChildren(node('tr', '', {}, ...known.map(heading)));
    }
    const by = known.find(column => column.id === sorted.id) ?? known[0];
    const turn = sorted.down ? -1 : 1;
    const ordered = [...trials].sort((a, b) => turn * compare(by.of(a), by.of(b)) || a.number - b.number);
    const shown = all ? ordered : ordered.slice(0, FIRST_ROWS);
    body.replaceChildren(...shown.map(trial => row(known, trial, search.best?.number)));
    scroll.hidden = !trials.length;
    empty.hidden = Boolean(trials.length);
    setText(more, trials.length > FIRST_ROWS ? (all ? 'Show fewer' : `Show all ${trials.length}`) : '');
  }

  function update() {
    late = table.matches(':hover'); // rows do not jump below the pointer
    if (!late) {
      draw();
    }
  }

  place.addEventListener('pointerleave', () => {
    pick(null);
    if (late) {
      late = false;
      draw();
    }
  });
  draw();
  return { place, update };
}
