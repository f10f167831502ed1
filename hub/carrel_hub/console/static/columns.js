/* Which columns of a table are shown: a choice of this browser. Without this file the usual ones. */
(() => {
  "use strict";
  const menu = document.getElementById("columns");
  if (!menu) return;
  const kept = `carrel-columns-${menu.dataset.table}`;
  const boxes = [...menu.querySelectorAll("input[type=checkbox]")];

  const stored = () => {
    try { return JSON.parse(localStorage.getItem(kept)) || {}; } catch { return {}; }
  };
  const show = () => {
    const table = document.getElementById(menu.dataset.table);
    if (!table) return;
    for (const box of boxes) {
      for (const cell of table.querySelectorAll(`[data-column="${box.value}"]`)) cell.hidden = !box.checked;
    }
    const shown = boxes.filter((box) => box.checked).length;
    for (const cell of table.querySelectorAll("[data-spans]")) cell.colSpan = shown + Number(cell.dataset.spans);
  };

  const chosen = stored();
  for (const box of boxes) {
    if (typeof chosen[box.value] === "boolean") box.checked = chosen[box.value];
    box.addEventListener("change", () => {
      const all = Object.fromEntries(boxes.map((one) => [one.value, one.checked]));
      try { localStorage.setItem(kept, JSON.stringify(all)); } catch { /* private windows keep nothing */ }
      show();
    });
  }
  menu.hidden = false;
  show();
  document.body.addEventListener("htmx:oobAfterSwap", show);
})();
