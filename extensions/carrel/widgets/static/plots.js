// Curves of runs, laid over each other: one plot for each metric, drawn by uPlot (a global of its
// own file). Hover shows values; the axis is steps or time, values may be smoothed or logarithmic.
// The console and notebooks use this file.
const PLOT_HEIGHT = 220;
const PLOT_COLOURS = ['#3b82c4', '#d97332', '#3f9b56', '#b0559f', '#9c8412', '#c94f4f', '#5f6fd6', '#1f9aa0', '#8d6e5a', '#7c8592'];
const PLOT_DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

function plotNode(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** A value in four digits. */
export function plotWords(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) {
    return '';
  }
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : String(+value.toPrecision(4));
}

/** Exponential moving average, without the pull of its first value; 0 leaves all as it is. */
export function smoothed(values, weight) {
  let mean = 0;
  let total = 0;
  return values.map(value => {
    if (value === null || !weight) {
      return value;
    }
    mean = mean * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return mean / total;
  });
}

/** The points of a run as two columns in the order of x: the last report of a step counts. */
export function plotColumns(points, look) {
  const first = Math.min(...points.map(point => point[1]));
  const byX = new Map();
  for (const [step, at, value] of points) {
    const usable = Number.isFinite(value) && (!look.log || value > 0);
    byX.set(look.time ? at - first : step, usable ? value : null);
  }
  const xs = [...byX.keys()].sort((a, b) => a - b);
  return [xs, smoothed(xs.map(x => byX.get(x)), look.smooth)];
}

function plotDuration(seconds) {
  const whole = Math.round(seconds);
  if (whole < 120) {
    return `${whole} s`;
  }
  return whole < 7200 ? `${Math.round(whole / 60)} min` : `${Math.round(whole / 360) / 10} h`;
}

function plotOptions(place, metric, drawn, look) {
  const style = getComputedStyle(place);
  const axis = { stroke: style.color, grid: { stroke: style.getPropertyValue('--plot-grid') || '#8884', width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
  const said = look.time ? (_, value) => (value === null ? '' : plotDuration(value)) : (_, value) => (value === null ? '' : value.toLocaleString('en'));
  return {
    width: Math.max(240, place.clientWidth), height: PLOT_HEIGHT,
    scales: { x: { time: false }, y: { distr: look.log ? 3 : 1 } },
    axes: [
      { ...axis, values: (_, splits) => splits.map(x => (look.time ? plotDuration(x) : x.toLocaleString('en'))) },
      { ...axis, size: 60, values: (_, splits) => splits.map(plotWords) }
    ],
    cursor: { sync: { key: 'carrel-runs' }, drag: { x: true, y: false } },
    legend: { live: true },
    series: [
      { label: look.time ? 'time' : 'step', value: said },
      ...drawn.map(run => ({
        label: run.label, stroke: run.colour, dash: run.dash, width: 1.75, spanGaps: true,
        points: { show: run.points.length < 2 }, value: (_, value) => plotWords(value)
      }))
    ]
  };
}

function plotSentence(metric, drawn) {
  const ends = drawn.slice(0, 10).map(run => {
    const [step, , value] = run.points[run.points.length - 1];
    return `${run.label} ${plotWords(value) || value} at step ${step.toLocaleString('en')}`;
  });
  return `${metric}: ${ends.join('; ')}`;
}

function plotChoice(label, control) {
  return plotNode('label', { class: 'plot-choice' }, label, ' ', control);
}

/**
 * A panel of plots. `runs` is a list of `{ label, curves: { metric: [[step, at, value], …] } }`;
 * `update(runs)` draws new values and keeps how they are looked at; `destroy()` ends it.
 */
export function plotPanel(root, runs) {
  const look = { time: false, log: false, smooth: 0 };
  const across = plotNode('select', {}, plotNode('option', { value: '' }, 'steps'), plotNode('option', { value: 'time' }, 'time since the first value'));
  const log = plotNode('input', { type: 'checkbox' });
  const smooth = plotNode('input', { type: 'range', min: '0', max: '0.99', step: '0.01', value: '0' });
  const choices = plotNode('div', { class: 'plot-choices' }, plotChoice('Across', across), plotChoice('Logarithmic', log), plotChoice('Smoothing', smooth));
  const places = plotNode('div', { class: 'plots' });
  root.replaceChildren(choices, places);
  let plots = [];
  let shown = runs;

  function draw() {
    plots.forEach(plot => plot.destroy());
    plots = [];
    places.replaceChildren();
    const metrics = [...new Set(shown.flatMap(run => Object.keys(run.curves)))].sort();
    for (const metric of metrics) {
      const drawn = shown
        .map((run, index) => ({
          label: run.label, points: run.curves[metric] || [],
          colour: PLOT_COLOURS[index % PLOT_COLOURS.length], dash: PLOT_DASHES[Math.floor(index / PLOT_COLOURS.length) % PLOT_DASHES.length]
        }))
        .filter(run => run.points.length);
      if (!drawn.length) {
        continue;
      }
      const place = plotNode('div', { role: 'img', 'aria-label': plotSentence(metric, drawn) });
      places.append(plotNode('figure', { class: 'plot' }, plotNode('figcaption', {}, metric), place));
      const tables = drawn.map(run => plotColumns(run.points, look));
      plots.push(new uPlot(plotOptions(place, metric, drawn, look), tables.length > 1 ? uPlot.join(tables) : tables[0], place));
    }
    choices.hidden = !plots.length;
  }

  across.addEventListener('change', () => { look.time = across.value === 'time'; draw(); });
  log.addEventListener('change', () => { look.log = log.checked; draw(); });
  smooth.addEventListener('input', () => { look.smooth = Number(smooth.value); draw(); });
  let width = 0;
  const sizes = new ResizeObserver(() => {
    if (root.clientWidth && root.clientWidth !== width) {
      width = root.clientWidth;
      draw();
    }
  });
  sizes.observe(root);
  const dark = matchMedia('(prefers-color-scheme: dark)');
  dark.addEventListener('change', draw);
  document.addEventListener('carrel:theme', draw);
  return {
    update(next) {
      if (!places.matches(':hover')) {
        shown = next;
        draw();
      }
    },
    destroy() {
      sizes.disconnect();
      dark.removeEventListener('change', draw);
      document.removeEventListener('carrel:theme', draw);
      plots.forEach(plot => plot.destroy());
    }
  };
}
