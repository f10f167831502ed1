// The map of all GPUs: solid in use, hatched borrowed, dashed held, crossed broken.
import { svg } from './quota.js';
import { node, tellShown, troubleLine } from './parts.js';

const CELL = { width: 84, height: 26 };
const PROJECTS = [
  '#2c6eac', '#c46f35', '#b1b028', '#63395b', '#ee84a0', '#7ab4ef',
  '#453297', '#deca82', '#8e0b0f', '#8d565b', '#3de5e0', '#5d86f2'
];
let hatches = 0;

function colour(holder) {
  return holder.color === null ? '#8a8d91' : PROJECTS[holder.color % PROJECTS.length];
}

function shapes(device, hatch) {
  const drawn = [];
  let start = 0;
  for (const holder of device.holders) {
    const place = { x: (start / 1000) * CELL.width, y: 1, width: (holder.milli / 1000) * CELL.width, height: CELL.height - 2 };
    const held = holder.state === 'held';
    drawn.push(svg('rect', { ...place, class: held ? 'carrel-gpu-held' : '', fill: held ? 'none' : colour(holder), stroke: colour(holder) }));
    if (holder.borrowed && !held) {
      drawn.push(svg('rect', { ...place, fill: `url(#${hatch})` }));
    }
    start += holder.milli;
  }
  if (device.broken) {
    const line = { class: 'carrel-gpu-cross', x1: 0, x2: CELL.width };
    drawn.push(svg('line', { ...line, y1: 0, y2: CELL.height }), svg('line', { ...line, y1: CELL.height, y2: 0 }));
  }
  return drawn;
}

function cell(device) {
  const hatch = `carrel-gpu-hatch-${++hatches}`;
  const stripes = svg('path', { class: 'carrel-gpu-hatch', d: 'M-1 1 L1 -1 M0 8 L8 0 M7 9 L9 7' });
  const picture = svg(
    'svg',
    { viewBox: `0 0 ${CELL.width} ${CELL.height}`, width: CELL.width, height: CELL.height, role: 'img', 'aria-label': device.words },
    svg('title', {}, device.words),
    svg('pattern', { id: hatch, width: 8, height: 8, patternUnits: 'userSpaceOnUse' }, stripes),
    svg('rect', { class: 'carrel-gpu-frame', x: 0.5, y: 0.5, width: CELL.width - 1, height: CELL.height - 1 }),
    ...shapes(device, hatch)
  );
  const labels = device.holders.map(holder => holder.label).join(', ');
  const said = device.broken ? 'broken' : labels || 'free';
  return node('li', '', {}, picture, node('span', 'carrel-soft', { 'aria-hidden': 'true' }, `${device.index} · ${said}`));
}

function row(machine) {
  return node(
    'div', 'carrel-machine', {},
    node('div', '', {}, node('strong', '', {}, machine.name), node('span', 'carrel-soft', {}, ` ${machine.words}`)),
    node('ul', 'carrel-gpus', {}, ...machine.devices.map(cell))
  );
}

function render({ model, el }) {
  const list = node('div');
  const root = node('section', 'carrel-view', { 'aria-label': 'GPUs' }, list, troubleLine(model));

  function draw() {
    const nodes = model.get('nodes');
    list.replaceChildren(...nodes.map(row));
    if (!nodes.some(machine => machine.devices.length)) {
      list.append(node('p', 'carrel-empty', {}, 'There are no GPUs.'));
    }
  }

  model.on('change:nodes', draw);
  draw();
  el.append(root);
  const hidden = tellShown(model, root);
  return () => {
    model.off('change:nodes', draw);
    hidden();
  };
}

export default { render };
