// One picture for each kind of work, so that cards and tabs are told apart at a glance.
const SHAPES = {
  job: '<path d="M3 4h18v2H3zM3 18h18v2H3z"/><path d="M5 8h14v8H5zm2 2v4h4v-4z" fill-rule="evenodd"/>',
  training: '<path d="M7 4v16l13-8z"/>',
  distributed:
    '<path d="M9.5 3h5v5h-5zM3 16h5v5H3zM9.5 16h5v5h-5zM16 16h5v5h-5z"/>' +
    '<path d="M11.3 8h1.4v3.3h6.5V16h-1.4v-3.3h-5.1V16h-1.4v-3.3H6.2V16H4.8v-4.7h6.5z"/>',
  experiment:
    '<path d="M5 3h2v6H5zM4 9h4v3H4zM5 12h2v9H5zM11 3h2v10h-2zM10 13h4v3h-4zM11 16h2v5h-2z"/>' +
    '<path d="M17 3h2v3h-2zM16 6h4v3h-4zM17 9h2v12h-2z"/>',
  inference:
    '<circle cx="12" cy="12" r="3"/>' +
    '<path d="M6.3 6.3l1.4 1.4a6 6 0 0 0 0 8.6l-1.4 1.4a8 8 0 0 1 0-11.4z"/>' +
    '<path d="M17.7 6.3a8 8 0 0 1 0 11.4l-1.4-1.4a6 6 0 0 0 0-8.6z"/>',
  tensorboard: '<path d="M3 3h2v16h16v2H3z"/><path d="M7 16l4-7 3 4 5-8 1.7 1-6.5 10.5-3-4-2.4 4.5z"/>',
  console:
    '<path d="M3 4h18v16H3zm2 4v10h14V8z" fill-rule="evenodd"/><path d="M7 10h4v6H7zM13 10h4v2h-4zM13 14h4v2h-4z"/>',
  tutorial: '<path d="M12 3 1 9l11 6 9-4.9V17h2V9z"/><path d="M5 13.2V17l7 4 7-4v-3.8l-7 3.8z"/>'
};

/** The picture of a kind as SVG, in the colours of JupyterLab's theme. */
export function svgOf(kind) {
  const head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">';
  return `${head}<g class="jp-icon3" fill="#616161">${SHAPES[kind]}</g></svg>`;
}

/** JupyterLab's icon of each kind, by kind. */
export function iconsOf(LabIcon) {
  return Object.fromEntries(
    Object.keys(SHAPES).map(kind => [kind, new LabIcon({ name: `carrel:${kind}`, svgstr: svgOf(kind) })])
  );
}
