/* A folder of this computer as the command line sends it: a list of files, each a list of chunks
   that are named by their SHA-256; only what the project does not have yet is sent. */
import { rulesOf, verdict } from "./ignore.js";

const AT_ONCE = 4;
const ATTEMPTS = 4;
const ROUNDS = 3;
const MOST_WALKED = 200000;
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;
const STAYS = "A line in .carrelignore makes a file stay here.";

/* What a person has to do otherwise; the message says it. */
export class Refused extends Error {}

const mib = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
const counted = (number) => (number === 1 ? "1 file" : `${number.toLocaleString("en")} files`);

/* The files that a person picked: the folder's name, and paths with what gives their File. */
export function picked(files) {
  const found = new Map();
  let name = "";
  for (const file of files) {
    const [root, ...parts] = file.webkitRelativePath.split("/");
    name = root;
    found.set(parts.join("/"), async () => file);
  }
  return { name, files: found };
}

/* The same of a folder that was dropped; folders that are never sent are not entered. */
export async function dropped(entry, { neverSent }) {
  const never = rulesOf(neverSent.join("\n"));
  const found = new Map();
  const walk = async (folder, inside) => {
    const reader = folder.createReader();
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) return;
      for (const one of some) {
        const path = inside + one.name;
        if (found.size > MOST_WALKED) throw new Refused(`The folder has more than ${MOST_WALKED.toLocaleString("en")} files.`);
        if (one.isFile) found.set(path, () => new Promise((resolve, reject) => one.file(resolve, reject)));
        else if (verdict(never, `${path}/`) !== true) await walk(one, `${path}/`);
      }
    }
  };
  await walk(entry, "");
  return { name: entry.name, files: found };
}

/* List what goes along. Throws Refused. `tell` hears how many bytes of how many are read. */
export async function pack({ name, files }, rules, tell) {
  const paths = await alongOf(files, rules);
  if (!paths.length) throw new Refused(`${name} has no file that would be sent.`);
  const strange = paths.find((path) => UNPRINTABLE.test(path) || path.length > rules.longestPath);
  if (strange !== undefined) throw new Refused(`${JSON.stringify(strange)} is no name that can be sent. ${STAYS}`);
  if (paths.length > rules.mostFiles) throw tooMuch(name, counted(rules.mostFiles));
  const all = [];
  await together(paths.entries(), async ([at, path]) => { all[at] = await readable(path, files.get(path)); });
  const size = all.reduce((sum, file) => sum + file.size, 0);
  if (size > rules.mostBytes) throw tooMuch(name, `${rules.mostBytes / 2 ** 20} MiB`);
  let read = 0;
  const listed = [], places = new Map();
  await together(paths.entries(), async ([at, path]) => {
    const file = all[at], chunks = [];
    let executable = false;
    for (let from = 0; from < file.size; from += rules.chunkBytes) {
      const content = await readable(path, () => file.slice(from, from + rules.chunkBytes).arrayBuffer());
      if (from === 0) executable = isProgram(new Uint8Array(content));
      const digest = await digestOf(content);
      chunks.push(digest);
      places.set(digest, { path, file, from });
      tell(read += content.byteLength, size);
    }
    listed[at] = { path, size: file.size, executable, chunks };
  });
  return { name, listed, places, size, told: `${name}: ${counted(listed.length)}, ${mib(size)}` };
}

/* Send what is missing at an address; answers with the folder's digest. Throws Refused. */
export async function send(packed, address, headers, rules, tell) {
  const list = new Blob([JSON.stringify({ files: packed.listed })]);
  for (let round = 0; round < ROUNDS; round += 1) {
    const { digest, missing } = await (await ask(address, "POST", list, headers)).json();
    if (!missing.length) return digest;
    let sent = 0;
    tell(sent, missing.length);
    await together(missing.values(), async (chunk) => {
      const { path, file, from } = packed.places.get(chunk);
      const content = await readable(path, () => file.slice(from, from + rules.chunkBytes).arrayBuffer());
      if (await digestOf(content) !== chunk) throw changed(path);
      await ask(`${address}/${chunk}`, "PUT", new Blob([content]), headers);
      tell(sent += 1, missing.length);
    });
  }
  throw new Refused("The project's room for folders is being cleared just now; submit again.");
}

/* The paths that no ignore file leaves out, each folder's files before the folders in it. */
async function alongOf(files, { ignoreFiles, neverSent }) {
  const never = rulesOf(neverSent.join("\n"));
  const rulesIn = async (inside) => {
    const texts = [];
    for (const one of ignoreFiles) {
      const get = files.get(inside + one);
      if (get) texts.push(new TextDecoder("utf-8", { ignoreBOM: true }).decode(await readable(inside + one, async () => (await get()).arrayBuffer())));
    }
    return rulesOf(texts.join("\n"));
  };
  const goes = (path, known) => {
    if (verdict(never, path) === true) return false;
    for (const { inside, rules } of known.toReversed()) {
      const ignored = verdict(rules, path.slice(inside.length));
      if (ignored !== null) return !ignored;
    }
    return true;
  };
  const folders = new Map([["", [{ inside: "", rules: await rulesIn("") }]]]);
  const knownIn = async (inside) => {
    if (folders.has(inside)) return folders.get(inside);
    const above = await knownIn(inside.slice(0, inside.lastIndexOf("/", inside.length - 2) + 1));
    const known = above && goes(inside, above) ? [...above, { inside, rules: await rulesIn(inside) }] : null;
    folders.set(inside, known);
    return known;
  };
  const found = [];
  for (const path of files.keys()) {
    const known = await knownIn(path.slice(0, path.lastIndexOf("/") + 1));
    if (known && goes(path, known)) found.push(path);
  }
  return found.sort(byFolder);
}

function byFolder(one, other) {
  const [a, b] = [one.split("/"), other.split("/")];
  let at = 0;
  while (a[at] === b[at] && at < a.length - 1 && at < b.length - 1) at += 1;
  const inFolder = (at < a.length - 1) - (at < b.length - 1);
  return inFolder || (a[at] < b[at] ? -1 : 1);
}

/* The browser does not tell which files may be executed: scripts and programs are. */
function isProgram(head) {
  const begins = (...bytes) => bytes.every((byte, at) => head[at] === byte);
  return begins(0x23, 0x21) || begins(0x7f, 0x45, 0x4c, 0x46);
}

async function digestOf(content) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const changed = (path) => new Refused(`${path} was changed, or cannot be read: choose the folder again. ${STAYS}`);
const tooMuch = (name, most) => new Refused(`${name} has more than ${most}: name large data in .carrelignore and put it on a volume, or choose a folder with the code alone.`);

async function readable(path, get) {
  try { return await get(); } catch { throw changed(path); }
}

async function ask(address, method, body, headers) {
  const type = { "Content-Type": "application/octet-stream" };
  for (let attempt = 1; ; attempt += 1) {
    let answer = null;
    try { answer = await fetch(address, { method, body, headers: { ...headers, ...type }, credentials: "same-origin" }); } catch { /* no connection */ }
    if (answer?.ok) return answer;
    const passing = answer === null || [429, 502, 503, 504].includes(answer.status);
    if (!passing || attempt === ATTEMPTS) throw new Refused(await problemOf(answer));
    await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** attempt));
  }
}

async function problemOf(answer) {
  if (answer === null) return "The console does not answer: submit again in a moment.";
  try { return (await answer.json()).problem; } catch { return `The console answered ${answer.status}: submit again in a moment.`; }
}

/* Some at a time; the first failure ends it, once nothing is under way any more. */
async function together(values, work) {
  const failures = [];
  const worker = async () => {
    for (const value of values) {
      if (failures.length) return;
      try { await work(value); } catch (error) { failures.push(error); }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  if (failures.length) throw failures[0];
}
