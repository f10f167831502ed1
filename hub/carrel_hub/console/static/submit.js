/* The folder that goes along with submitted work: picked or dropped, listed, sent with the form. */
import { Refused, dropped, pack, picked, send } from "./folder.js";

const part = (name) => document.getElementById(`code-${name}`);
const field = part("field");
if (field) offer(field, JSON.parse(field.dataset.rules));

function offer(place, rules) {
  if (!window.isSecureContext || !crypto.subtle) {
    part("state").textContent = "This browser hashes files only at addresses that begin with https, and at localhost; at this one a folder goes along with carrel submit --code FOLDER, or as code from Git.";
    return;
  }
  const form = place.closest("form");
  const mark = document.getElementById("code");
  const about = part("about");
  let packing = null; // a promise of the listed folder
  let sentTo = "";

  const say = (text, wrong = false) => {
    part("state").textContent = text;
    part("state").classList.toggle("wrong", wrong);
  };
  const show = (text, done, total) => {
    part("progress").hidden = total === undefined;
    if (total) Object.assign(part("progress"), { max: total, value: done });
    say(text);
  };
  const fail = (error) => {
    show("");
    if (!(error instanceof Refused)) console.error(error);
    say(error instanceof Refused ? error.message : "The folder cannot be read.", true);
  };

  const take = (source) => {
    sentTo = "";
    Object.assign(mark, { value: "", checked: false });
    part("kept").hidden = true;
    show("Looking at the folder.");
    const mine = packing = (async () => pack(await source, rules, (done, total) => { if (packing === mine) show("Reading the folder.", done, total); }))();
    mine.then((found) => {
      if (packing !== mine) return;
      show("It is sent with the form.");
      mark.checked = true;
      part("kept").hidden = false;
      part("told").textContent = about.value = found.told;
    }, (error) => { if (packing === mine) { packing = null; fail(error); } });
  };

  const project = () => place.dataset.project || form.elements.project.value;
  const buttons = () => form.querySelectorAll("button:not([type=button])");
  const sendTo = async (where) => {
    const found = await packing;
    if (!mark.checked) return;
    const address = `${place.dataset.send}${encodeURIComponent(where)}`;
    const headers = JSON.parse(document.body.getAttribute("hx-headers"));
    show("Sending the folder.");
    mark.value = await send(found, address, headers, rules, (done, total) => show(`Sending the folder: ${done} of ${total} pieces.`, done, total));
    sentTo = where;
    show("The folder is there.");
  };
  form.addEventListener("submit", async (event) => {
    const where = project();
    if (packing === null || sentTo === where || (part("kept").hidden === false && !mark.checked)) return;
    event.preventDefault();
    const { submitter } = event;
    buttons().forEach((button) => { button.disabled = true; });
    let done = false;
    try { await sendTo(where); done = true; } catch (error) { fail(error); }
    buttons().forEach((button) => { button.disabled = false; });
    if (!done) return;
    if (!mark.checked) packing = null;
    form.requestSubmit(submitter);
  });

  part("choose").addEventListener("click", () => part("files").click());
  part("files").addEventListener("change", (event) => {
    event.stopPropagation();
    if (part("files").files.length) take(picked(part("files").files));
  });
  for (const name of ["dragenter", "dragover"]) {
    place.addEventListener(name, (event) => { event.preventDefault(); place.classList.add("over"); });
  }
  place.addEventListener("dragleave", (event) => { if (!place.contains(event.relatedTarget)) place.classList.remove("over"); });
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    if (entries.length !== 1 || !entries[0].isDirectory) return say("Drop one folder; single files do not go along.", true);
    take(dropped(entries[0], rules));
  });
  part("choice").hidden = false;
}
