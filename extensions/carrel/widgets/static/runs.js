// What makes a table of runs work: its headers sort, a box searches, a list groups. Cells carry
// the value that they are sorted by as data-value; numbers go before texts, nothing goes last.

function cellValue(row, column) {
  const said = row.cells[column]?.dataset.value ?? row.cells[column]?.textContent.trim() ?? '';
  return said !== '' && Number.isFinite(Number(said)) ? Number(said) : said;
}

/** The order of two cells; nothing is last whichever way one sorts. */
export function inOrder(a, b, down) {
  if (a === '' || b === '') {
    return (a === '') - (b === '');
  }
  const both = typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === 'number' ? -1 : 1;
  return down ? -both : both;
}

/**
 * Make a table sort, search and group. `tools` is where the box and the list go; `look` is what is
 * chosen at first (`{ sort, down, search, group }`, columns by their names), `chosen` hears of changes.
 */
export function sortTable(table, tools, look = {}, chosen = () => {}) {
  const heads = [...table.tHead.rows[0].cells];
  const names = heads.map(head => head.dataset.column || head.textContent.trim());
  const rows = [...table.tBodies[0].rows];
  const state = { sort: '', down: false, search: '', group: '', ...look };
  const search = document.createElement('input');
  Object.assign(search, { type: 'search', value: state.search, placeholder: 'Search', autocomplete: 'off' });
  search.setAttribute('aria-label', 'Search the runs');
  const group = document.createElement('select');
  group.setAttribute('aria-label', 'Group the runs by');
  group.append(new Option('Not grouped', ''), ...names.map(name => new Option(`Grouped by ${name}`, name)));
  group.value = state.group;
  const found = document.createElement('span');
  found.setAttribute('role', 'status');
  tools.append(search, group, found);

  const buttons = heads.map((head, index) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'sorter';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      state.down = state.sort === names[index] && !state.down;
      state.sort = names[index];
      apply();
    });
    return button;
  });

  function apply() {
    const wanted = state.search.toLowerCase().split(/\s+/).filter(Boolean);
    const left = rows.filter(row => wanted.every(word => row.textContent.toLowerCase().includes(word)));
    const column = names.indexOf(state.sort);
    const grouped = names.indexOf(state.group);
    const ordered = [...left].sort((a, b) => {
      const first = grouped < 0 ? 0 : inOrder(cellValue(a, grouped), cellValue(b, grouped), false);
      return first || (column < 0 ? 0 : inOrder(cellValue(a, column), cellValue(b, column), state.down));
    });
    const body = [];
    let last = null;
    for (const row of ordered) {
      const value = grouped < 0 ? null : String(row.cells[grouped].textContent.trim() || 'none');
      if (value !== last) {
        last = value;
        const head = document.createElement('tr');
        head.className = 'group';
        const cell = document.createElement('th');
        cell.colSpan = names.length;
        cell.scope = 'rowgroup';
        cell.textContent = `${state.group}: ${value}`;
        head.append(cell);
        body.push(head);
      }
      body.push(row);
    }
    table.tBodies[0].replaceChildren(...body);
    heads.forEach((head, index) => {
      const how = names[index] === state.sort ? (state.down ? 'descending' : 'ascending') : 'none';
      head.setAttribute('aria-sort', how);
      buttons[index].dataset.sorted = how;
    });
    found.textContent = left.length === rows.length ? '' : `${left.length} of ${rows.length}`;
    chosen(state);
  }

  search.addEventListener('input', () => { state.search = search.value; apply(); });
  group.addEventListener('change', () => { state.group = group.value; apply(); });
  apply();
}
