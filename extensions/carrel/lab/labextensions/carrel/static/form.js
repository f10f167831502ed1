// A form for one kind of work: help beside each field, checked as one types, a forecast below.
import { button } from './actions.js';
import { node, setSentence, setText } from './parts.js';

const PAUSE_SECONDS = 0.6;
let forms = 0;

/** One field: `{ row, flag, read, fill, tell, touched }`. */
function fieldOf(field, id, changed) {
  const attributes = { id, 'aria-describedby': `${id}-help ${id}-error`, autocomplete: 'off', spellcheck: 'false' };
  let input;
  if (field.type === 'choice') {
    input = node('select', 'carrel-input', attributes, node('option', '', { value: '' }, '(default)'));
    input.append(...field.choices.map(choice => node('option', '', { value: choice }, choice)));
  } else if (field.type === 'switch') {
    input = node('input', '', { ...attributes, type: 'checkbox' });
  } else if (field.many) {
    input = node('textarea', 'carrel-input', { ...attributes, rows: 2, placeholder: `${field.shown}, one a line` });
  } else {
    input = node('input', 'carrel-input', { ...attributes, type: 'text', placeholder: field.shown });
  }
  const help = node('span', 'carrel-help', { id: `${id}-help` }, field.help);
  const error = node('span', 'carrel-error', { id: `${id}-error` });
  const label = node('label', '', { for: id }, field.label);
  const row = node('div', `carrel-row carrel-row-${field.type}`, {}, label, input, help, error);
  const made = {
    row,
    flag: field.flag,
    touched: false,
    read() {
      if (field.type === 'switch') {
        return input.checked || null;
      }
      const text = input.value.trim();
      if (!text) {
        return null;
      }
      return field.many ? text.split('\n').map(line => line.trim()).filter(Boolean) : text;
    },
    fill(value) {
      if (field.type === 'switch') {
        input.checked = Boolean(value);
      } else {
        input.value = Array.isArray(value) ? value.join('\n') : value;
      }
      if (field.many && Array.isArray(value)) {
        input.rows = Math.min(8, Math.max(2, value.length));
      }
    },
    tell(sentence) {
      setText(error, sentence);
      input.setAttribute('aria-invalid', String(Boolean(sentence)));
    },
    focus: () => input.focus()
  };
  setText(error, '');
  input.addEventListener('input', () => {
    made.touched = true;
    changed();
  });
  return made;
}

function grouped(fields, made) {
  const first = fields.map((field, index) => (field.first ? made[index].row : null)).filter(Boolean);
  const groups = new Map();
  fields.forEach((field, index) => {
    if (!field.first) {
      const rows = groups.get(field.group) ?? [];
      groups.set(field.group, [...rows, made[index].row]);
    }
  });
  const folds = [...groups].map(([group, rows]) =>
    node('details', 'carrel-gang', {}, node('summary', '', {}, group), ...rows)
  );
  return [...first, ...folds];
}

/**
 * The form as an element. `options`:
 * `title`; `fields` as the server tells them; `preset` values by flag;
 * `send(given, dryRun)` resolves to the server's answer; `done(workload)` after it was sent;
 * `before()` is awaited before it is sent.
 */
export function formView(options) {
  const { title, fields, preset = {}, send, done = () => {}, before = async () => {} } = options;
  const number = ++forms;
  const forecast = node('div', 'carrel-forecast', { role: 'status' });
  const problem = node('div', 'carrel-trouble', { role: 'alert' });
  const submit = button('Submit', () => {}, 'carrel-main');
  submit.type = 'submit';
  let timer = null;
  let asked = '';
  const made = fields.map((field, index) => fieldOf(field, `carrel-form-${number}-${index}`, later));
  const root = node(
    'form', 'carrel-view carrel-job carrel-form', { 'aria-label': title, novalidate: '' },
    node('strong', 'carrel-name', {}, title), ...grouped(fields, made), forecast, problem,
    node('div', 'carrel-buttons', {}, submit)
  );
  made.forEach(field => field.flag in preset && field.fill(preset[field.flag]));
  [forecast, problem].forEach(element => setText(element, ''));

  function given() {
    const found = made.map(field => [field.flag, field.read()]).filter(([, value]) => value !== null);
    return Object.fromEntries(found);
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(() => void foresee(), PAUSE_SECONDS * 1000);
  }

  /** Show what is wrong; `all` also with fields that nobody has touched. */
  function tell(answer, all) {
    let first = null;
    for (const field of made) {
      const sentence = answer.errors[field.flag] ?? '';
      field.tell(all || field.touched ? sentence : '');
      first = first ?? (sentence ? field : null);
    }
    return first;
  }

  async function foresee() {
    const key = JSON.stringify(given());
    if (key === asked) {
      return;
    }
    asked = key;
    try {
      const answer = await send(JSON.parse(key), true);
      if (key !== asked) {
        return; // an older question
      }
      tell(answer, false);
      setText(problem, answer.message);
      setSentence(forecast, answer.forecast);
    } catch (error) {
      setText(problem, error.message);
    }
  }

  async function submitted() {
    clearTimeout(timer);
    submit.disabled = true;
    setText(problem, '');
    try {
      await before();
      const answer = await send(given(), false);
      setText(problem, answer.message);
      const first = tell(answer, true);
      if (answer.workload) {
        setSentence(forecast, `\`${answer.workload.project}/${answer.workload.name}\` was submitted.`);
        done(answer.workload);
      } else if (first) {
        first.row.closest('details')?.setAttribute('open', '');
        first.focus();
      }
    } catch (error) {
      setText(problem, error.message);
    }
    submit.disabled = false;
  }

  root.addEventListener('submit', event => {
    event.preventDefault();
    void submitted();
  });
  root.addEventListener('keydown', event => event.stopPropagation()); // not the notebook's shortcuts
  later();
  return root;
}
