// Runs side by side in a notebook: their curves, and the table of parameters and last values.
import { node } from './parts.js';
import { plotPanel, plotWords } from './plots.js';
import { sortTable } from './runs.js';

function compareCell(value) {
  const known = value === null || value === undefined ? '' : value;
  const text = typeof known === 'number' ? plotWords(known) : String(known);
  return node('td', typeof known === 'number' ? 'carrel-number' : '', { 'data-value': String(known) }, text);
}

function compareTable(sheet) {
  const columns = [['Run', row => row.run], ['State', row => row.state], ['Seconds', row => row.seconds === null ? null : Math.round(row.seconds)]];
  for (const name of sheet.parameters) {
    columns.push([name, row => row.parameters[name]]);
  }
  for (const name of sheet.metrics) {
    columns.push([name, row => row.metrics[name]]);
  }
  const head = node('tr', '', {}, ...columns.map(([name]) => node('th', '', { scope: 'col', 'data-column': name }, name)));
  const rows = sheet.rows.map(row => node('tr', '', {}, ...columns.map(([, value]) => compareCell(value(row)))));
  return node('table', 'carrel-table', {}, node('thead', '', {}, head), node('tbody', '', {}, ...rows));
}

function render({ model, el }) {
  const plots = node('div');
  const tools = node('div', 'carrel-row plot-choices');
  const table = compareTable(model.get('sheet'));
  el.append(node('section', 'carrel-view carrel-compare', { 'aria-label': 'Comparison of runs' }, plots, tools, node('div', 'carrel-wide', {}, table)));
  sortTable(table, tools);
  const panel = plotPanel(plots, model.get('runs'));
  return () => panel.destroy();
}

export default { render };
