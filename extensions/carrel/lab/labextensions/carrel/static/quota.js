// The quota line, the one picture of the product: a bar to scale with the guarantee as a mark, use
// inside it solid, borrowed beyond it hatched, pending demand as an outline.
import { quotaWords } from './words.js';

const SVG = 'http://www.w3.org/2000/svg';
let patterns = 0;

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** The bar as an SVG element; `project` as in the API. Colours: --carrel-quota, --carrel-line. */
export function quotaBar(project, width = 120, height = 10) {
  const use = project.use;
  const inside = use.gpus_allocated - use.gpus_borrowed;
  const quota = project.quota.gpus ?? inside;
  const start = Math.max(quota, inside);
  const end = Math.max(start + use.gpus_borrowed + use.gpus_waiting, 1);
  const at = gpus => (1 + (gpus / end) * (width - 2)).toFixed(2);
  const wide = gpus => ((gpus / end) * (width - 2)).toFixed(2);
  const hatch = `carrel-hatch-${++patterns}`;
  const band = (className, from, size, extra = {}) =>
    svg('rect', { class: className, x: at(from), y: 2, width: wide(size), height: height - 4, ...extra });
  return svg(
    'svg',
    {
      class: 'carrel-quota-bar',
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: 'img',
      'aria-label': quotaWords(project)
    },
    svg(
      'pattern',
      { id: hatch, width: 4, height: 4, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
      svg('rect', { class: 'carrel-quota-used', width: 2, height: 4 })
    ),
    band('carrel-quota-free', 0, quota),
    band('carrel-quota-used', 0, inside),
    band('carrel-quota-borrowed', start, use.gpus_borrowed, { fill: `url(#${hatch})` }),
    band('carrel-quota-waiting', start + use.gpus_borrowed, use.gpus_waiting),
    svg('line', { class: 'carrel-quota-mark', x1: at(quota), x2: at(quota), y1: 0, y2: height })
  );
}
