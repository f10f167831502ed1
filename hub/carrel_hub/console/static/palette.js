/* The command palette: Ctrl K or Cmd K finds pages and work by name, with the keyboard alone. On the
   Hub's pages, whose scripts cannot read what the console says, work is looked up on its page Work. */
(() => {
  "use strict";
  const opener = document.getElementById("find");
  const dialog = document.createElement("dialog");
  dialog.className = "palette";
  dialog.setAttribute("aria-label", "Find a page or work");
  const input = Object.assign(document.createElement("input"), { type: "search", placeholder: "Find a page or work by name", autocomplete: "off" });
  input.setAttribute("aria-label", "Name");
  const list = document.createElement("ul");
  list.setAttribute("aria-label", "Found");
  dialog.append(input, list);
  document.body.append(dialog);
  opener.hidden = false;

  const { console: home, find: source } = opener.dataset;
  const pages = [...document.querySelectorAll(".top nav a, .account a")].map((link) => ({ text: link.textContent.trim(), about: "page", address: link.href }));
  pages.push({ text: "Submit work", about: "page", address: `${home}submit` }, { text: "Compare runs", about: "page", address: `${home}compare` });
  const workNamed = (text) => ({ text: `Work with “${text}” in its name`, about: "search", address: `${home}jobs?whose=all&search=${encodeURIComponent(text)}` });
  let asked = 0;

  const show = (found) => list.replaceChildren(...found.map((one) => {
    const link = Object.assign(document.createElement("a"), { href: one.address, textContent: one.text });
    const about = Object.assign(document.createElement("span"), { textContent: ` ${one.about}` });
    link.append(about);
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
  const find = async () => {
    const text = input.value.trim().toLowerCase();
    const turn = ++asked;
    const matching = pages.filter((one) => one.text.toLowerCase().includes(text));
    show(source || !text ? matching : [...matching, workNamed(text)]);
    if (!text || !source) return;
    await new Promise((resolve) => setTimeout(resolve, 150));
    if (turn !== asked) return;
    const answer = await fetch(`${source}?search=${encodeURIComponent(text)}`, { headers: JSON.parse(document.body.getAttribute("hx-headers")) });
    if (turn === asked && answer.ok) show([...matching, ...(await answer.json()).found]);
  };
  const open = () => { dialog.showModal(); input.value = ""; find(); input.focus(); };

  opener.addEventListener("click", open);
  input.addEventListener("input", find);
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (!dialog.open) open();
    }
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const next = at + (event.key === "ArrowDown" ? 1 : -1);
      (next < 0 ? input : links[Math.min(next, links.length - 1)] || input).focus();
    } else if (event.key === "Enter" && document.activeElement === input && links.length) {
      event.preventDefault();
      links[0].click();
    }
  });
})();
