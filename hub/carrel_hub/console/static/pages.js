/* Curves and tables of runs: reads the curves that a page names and draws them; tables sort. */
import { plotPanel } from '../shared/plots.js';
import { sortTable } from '../shared/runs.js';

for (const place of document.querySelectorAll('.curves')) {
  let panel = null;
  const read = async () => {
    const answer = await fetch(place.dataset.curves, { headers: JSON.parse(document.body.getAttribute('hx-headers')) });
    if (!answer.ok) return;
    const { runs } = await answer.json();
    if (panel !== null) return panel.update(runs);
    if (runs.length) panel = plotPanel(place, runs);
    else place.replaceChildren(Object.assign(document.createElement('p'), { className: 'empty', textContent: place.dataset.empty || 'None of these has reported metrics yet.' }));
  };
  read();
  let last = Date.now();
  document.body.addEventListener('carrel:refresh', () => {
    if (Date.now() - last < 2000) return;
    last = Date.now();
    read();
  });
}

for (const table of document.querySelectorAll('table.runs')) {
  const address = new URL(location.href);
  const look = { sort: address.searchParams.get('sort') || '', down: address.searchParams.has('down'), search: address.searchParams.get('search') || '', group: address.searchParams.get('group') || '' };
  sortTable(table, document.getElementById(table.dataset.tools), look, chosen => {
    for (const name of ['sort', 'search', 'group']) chosen[name] ? address.searchParams.set(name, chosen[name]) : address.searchParams.delete(name);
    chosen.down ? address.searchParams.set('down', '') : address.searchParams.delete('down');
    history.replaceState(null, '', address);
  });
}
