// The pictures of an experiment: history, parallel coordinates, importance. All in the table, too.
import { svg } from './quota.js';
import { node, valueWords } from './parts.js';

const CHART = { width: 460, height: 180, left: 46, right: 12, top: 10, bottom: 24 };
const MOST_LINES = 300;

function extent(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

function figure(title, picture) {
  return node('figure', 'carrel-chart', {}, node('figcaption', '', {}, title), picture);
}

function picture(label, ...children) {
  const box = `0 0 ${CHART.width} ${CHART.height}`;
  return svg('svg', { viewBox: box, role: 'img', 'aria-label': label }, ...children);
}

function words(x, y, said, anchor = 'start') {
  return svg('text', { x, y, 'text-anchor': anchor }, said);
}

/** Only those that have a value, in the order of their numbers. */
export function valued(trials) {
  return trials.filter(trial => Number.isFinite(trial.value));
}

/** Each trial's value, and the best so far as a line of steps. */
export function historyChart(trials, search) {
  const done = valued(trials);
  if (!done.length) {
    return null;
  }
  const [low, high] = extent(done.map(trial => trial.value));
  const last = Math.max(1, search.completions - 1, ...done.map(trial => trial.number));
  const x = number => CHART.left + (number / last) * (CHART.width - CHART.left - CHART.right);
  const y = value => CHART.top + ((high - value) / (high - low)) * (CHART.height - CHART.top - CHART.bottom);
  const better = search.minimize ? Math.min : Math.max;
  let best = null;
  const steps = [];
  for (const trial of done.filter(trial => trial.state === 'completed')) {
    const next = best === null ? trial.value : better(best, trial.value);
    if (best !== null && next !== best) {
      steps.push(`${x(trial.number).toFixed(1)},${y(best).toFixed(1)}`);
    }
    best = next;
    steps.push(`${x(trial.number).toFixed(1)},${y(best).toFixed(1)}`);
  }
  const bottom = CHART.height - CHART.bottom;
  const dots = done.map(trial =>
    svg(
      'circle',
      { cx: x(trial.number).toFixed(1), cy: y(trial.value).toFixed(1), r: 3, class: 'carrel-dot', 'data-state': trial.state,
        ...(trial.number === search.best?.number && { 'data-best': '' }) },
      svg('title', {}, `Trial ${trial.number}: ${valueWords(trial.value)}, ${trial.state}`)
    )
  );
  const said = best === null ? '' : `; best so far ${valueWords(best)}`;
  return figure(
    `${search.metric} of each trial`,
    picture(
      `${search.metric} of ${done.length} trials, from ${valueWords(low)} to ${valueWords(high)}${said}`,
      svg('line', { class: 'carrel-axis', x1: CHART.left, x2: CHART.width - CHART.right, y1: bottom, y2: bottom }),
      svg('line', { class: 'carrel-axis', x1: CHART.left, x2: CHART.left, y1: CHART.top, y2: bottom }),
      words(CHART.left - 5, CHART.top + 8, valueWords(high), 'end'),
      words(CHART.left - 5, bottom, valueWords(low), 'end'),
      words(CHART.left, CHART.height - 6, 'trial 0'),
      words(CHART.width - CHART.right, CHART.height - 6, String(last), 'end'),
      svg('polyline', { class: 'carrel-best', points: steps.join(' ') }),
      ...dots
    )
  );
}

/** How a parameter's values lie on an axis: `{ at(value) 0..1, ends: [low, high] }`. */
function axisOf(values, logarithmic) {
  if (values.every(value => typeof value === 'number')) {
    const scale = logarithmic && values.every(value => value > 0) ? Math.log : value => value;
    const [low, high] = extent(values.map(scale));
    return { at: value => (scale(value) - low) / (high - low), ends: [Math.min(...values), Math.max(...values)].map(valueWords) };
  }
  const kinds = [...new Set(values.map(String))].sort();
  const step = 1 / Math.max(1, kinds.length - 1);
  return { at: value => kinds.indexOf(String(value)) * step, ends: [kinds[0], kinds[kinds.length - 1]] };
}

/** One line for each trial over one axis for each parameter, and the result at the end. */
export function parallelChart(trials, search) {
  const done = valued(trials).filter(trial => trial.state !== 'running').slice(-MOST_LINES);
  const names = [...new Set(done.flatMap(trial => Object.keys(trial.parameters)))].filter(name =>
    done.every(trial => name in trial.parameters)
  );
  if (done.length < 2 || !names.length) {
    return null;
  }
  const axes = names.map(name => axisOf(done.map(trial => trial.parameters[name]), search.logarithmic.includes(name)));
  axes.push(axisOf(done.map(trial => trial.value), false));
  const titles = [...names, search.metric];
  const [from, to] = [CHART.top + 20, CHART.height - CHART.bottom];
  const x = index => 34 + (index / (axes.length - 1)) * (CHART.width - 68);
  const y = share => to - share * (to - from);
  const result = axes[axes.length - 1];
  const lines = done.map(trial => {
    const good = search.minimize ? 1 - result.at(trial.value) : result.at(trial.value);
    const values = [...names.map(name => trial.parameters[name]), trial.value];
    const points = values.map((value, index) => `${x(index).toFixed(1)},${y(axes[index].at(value)).toFixed(1)}`);
    const best = trial.number === search.best?.number;
    return svg(
      'polyline',
      {
        class: best ? 'carrel-path carrel-path-best' : 'carrel-path',
        points: points.join(' '), 'stroke-opacity': best ? 1 : (0.12 + 0.6 * good * good).toFixed(2),
        'data-number': trial.number
      },
      svg('title', {}, `Trial ${trial.number}: ${valueWords(trial.value)}`)
    );
  });
  const marks = axes.flatMap((axis, index) => {
    const anchor = index === 0 ? 'start' : index === axes.length - 1 ? 'end' : 'middle';
    const shift = index === 0 ? -30 : index === axes.length - 1 ? 30 : 0;
    return [
      svg('line', { class: 'carrel-axis', x1: x(index), x2: x(index), y1: from, y2: to }),
      words(x(index) + shift, CHART.top - 1, titles[index], anchor),
      words(x(index) + shift, from - 3, axis.ends[1], anchor),
      words(x(index) + shift, to + 11, axis.ends[0], anchor)
    ];
  });
  return figure(
    'Configurations and results',
    picture(`${done.length} configurations of ${names.join(', ')}; the best is drawn thick`, ...lines, ...marks)
  );
}

/** A bar for each parameter: how much of the result's variance it explains alone. */
export function importanceChart(search) {
  const shares = Object.entries(search.importance);
  if (!shares.length) {
    return null;
  }
  const rows = shares.map(([name, share]) => {
    const percent = `${Math.round(100 * share)} %`;
    const bar = node('span', 'carrel-share');
    bar.style.width = `${(100 * share).toFixed(1)}%`;
    return node(
      'li', '', {},
      node('span', 'carrel-share-name', {}, name),
      node('span', 'carrel-share-track', { 'aria-hidden': 'true' }, bar),
      node('span', 'carrel-number', {}, percent)
    );
  });
  const title = 'Importance: share of the variance that each explains alone';
  return figure(title, node('ul', 'carrel-shares', {}, ...rows));
}
