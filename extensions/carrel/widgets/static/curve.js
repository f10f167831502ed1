// One metric as a small line, its last value beside it.
import { svg } from './quota.js';
import { node, valueWords } from './parts.js';

const WIDTH = 220;
const HEIGHT = 56;
const EDGE = 4;

function path(points) {
  const steps = points.map(point => point[0]);
  const values = points.map(point => point[1]).filter(Number.isFinite);
  const [left, right] = [Math.min(...steps), Math.max(...steps)];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = step => EDGE + ((step - left) / (right - left || 1)) * (WIDTH - 2 * EDGE);
  const y = value => HEIGHT - EDGE - ((value - low) / (high - low || 1)) * (HEIGHT - 2 * EDGE);
  return points
    .filter(point => Number.isFinite(point[1]))
    .map(([step, value]) => [x(step).toFixed(1), y(value).toFixed(1)]);
}

/** The figure of one metric over steps, or over what `unit` says. */
export function curve(name, points, unit = 'step') {
  const drawn = path(points);
  const [lastStep, lastValue] = points[points.length - 1];
  const label = `${name}: ${valueWords(lastValue)} at ${unit} ${lastStep.toLocaleString('en')}`;
  const picture = svg(
    'svg',
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: 'carrel-curve', role: 'img', 'aria-label': label },
    svg('line', { class: 'carrel-axis', x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 })
  );
  if (drawn.length) {
    const [x, y] = drawn[drawn.length - 1];
    picture.append(
      svg('polyline', { points: drawn.map(point => point.join(',')).join(' ') }),
      svg('circle', { cx: x, cy: y, r: 2.5 })
    );
  }
  return node(
    'figure',
    'carrel-figure',
    { title: label },
    node(
      'figcaption',
      '',
      {},
      node('span', 'carrel-metric', {}, name),
      node('span', 'carrel-number', {}, valueWords(lastValue))
    ),
    picture
  );
}
