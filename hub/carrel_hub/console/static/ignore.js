/* Which paths the lines of a .gitignore name: Git's rules, as the command line has them from the
   library pathspec. Lines that are no patterns are passed over. */
const LINES = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;
const FOLDER = "(?<folder>/)";

export const rulesOf = (text) => text.split(LINES).map(ruleOf).filter((rule) => rule !== null);

/* Whether rules leave a path out (true), keep it (false) or say nothing of it (null). */
export function verdict(rules, path) {
  let found = null, weight = 0;
  for (const { ignores, pattern } of rules.toReversed()) {
    const match = pattern.exec(path);
    if (match === null) continue;
    const own = match.groups?.folder ? 1 : 2; // what names the path itself counts more
    if (own > weight) [found, weight] = [ignores, own];
    if (own === 2) break;
  }
  return found;
}

function ruleOf(line) {
  let text = line.endsWith("\\ ") ? line : line.trimEnd();
  if (!text || text === "/" || text.startsWith("#")) return null;
  const ignores = !text.startsWith("!");
  if (!ignores) text = text.slice(1);
  const expression = expressionOf(text.split("/"));
  if (expression === null) return null;
  try { return { ignores, pattern: new RegExp(expression, "u") }; } catch { return null; }
}

function expressionOf(parts) {
  const ofFolder = !parts.at(-1);
  if (!parts[0]) parts.shift();
  else if (parts.length === 1 || (parts.length === 2 && !parts[1])) parts.unshift("**");
  if (!parts.length) return null;
  if (ofFolder) parts[parts.length - 1] = "**";
  const squeezed = parts.filter((part, at) => part !== "**" || parts[at - 1] !== "**");
  const whole = squeezed.join("/");
  if (whole === "**" || whole === "**/*/**") return ofFolder ? FOLDER : whole === "**" ? "." : "/";
  return whole === "**/*" ? "." : joined(squeezed, ofFolder);
}

function joined(parts, ofFolder) {
  let found = "", slash = false;
  for (const [at, part] of parts.entries()) {
    const last = at === parts.length - 1;
    if (part === "**") {
      found += at === 0 ? "^(?:.+/)?" : last ? (ofFolder ? FOLDER : "/") : "(?:/.+)?";
      slash = at > 0;
      continue;
    }
    const glob = part === "*" ? "[^/]+" : globOf(part);
    if (glob === null) return null;
    found += (at === 0 ? "^" : "") + (slash ? "/" : "") + glob + (last ? `(?:${FOLDER}|$)` : "");
    slash = true;
  }
  return found;
}

/* One name with wildcards; null for brackets or a backslash without an end. */
function globOf(text) {
  const letters = [...text];
  let found = "";
  for (let at = 0; at < letters.length; at += 1) {
    const letter = letters[at];
    if (letter === "*") found += "[^/]*";
    else if (letter === "?") found += "[^/]";
    else if (letter === "\\") {
      at += 1;
      if (at === letters.length) return null;
      found += literal(letters[at]);
    } else if (letter === "[") {
      const not = "!^".includes(letters[at + 1] ?? " ");
      const first = at + 1 + not;
      const end = letters.indexOf("]", first + 1); // the first one may be a letter of the set
      if (end < 0) return null;
      const set = letters.slice(first, end).join("").replace(/[\\\]]/g, "\\$&");
      found += `[${not ? "^" : ""}${set}]`;
      at = end;
    } else found += literal(letter);
  }
  return found;
}

const literal = (letter) => letter.replace(/[\\^$.*+?()[\]{}|/]/, "\\$&");
