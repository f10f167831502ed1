// What the views of all kinds of work begin with: state, name, place, reason, buttons.
import { clockTime } from './words.js';
import { actions } from './actions.js';
import { nameOf, node, pageOf, progressOf, setSentence, setText, sinceWords, stateChip, troubleLine } from './parts.js';

/** Progress as a bar and in words. */
function progressBar() {
  const fill = node('div', 'carrel-fill');
  const track = node(
    'div', 'carrel-track',
    { role: 'progressbar', 'aria-label': 'Progress', 'aria-valuemin': 0, 'aria-valuemax': 100 }, fill
  );
  const words = node('span', 'carrel-progress-words');
  const row = node('div', 'carrel-progress', {}, track, words);
  return {
    row,
    update(job, now) {
      const found = progressOf(job, now);
      row.hidden = !found;
      if (!found) {
        return;
      }
      setText(words, found.words);
      track.hidden = found.share === null;
      const percent = Math.round((found.share ?? 0) * 100);
      track.setAttribute('aria-valuenow', percent);
      track.setAttribute('aria-valuetext', found.words);
      fill.style.width = `${percent}%`;
      fill.dataset.phase = job.phase;
    }
  };
}

function placeWords(job) {
  const parts = [job.project, job.gpus, job.where];
  if (job.place) {
    parts.push(`place ${job.place} in the queue`);
  }
  if (job.borrowed && !job.over) {
    parts.push('borrowed');
  }
  return parts.filter(Boolean).join(' · ');
}

function preemptionWords(job) {
  if (!job.preemption) {
    return '';
  }
  const often = job.preemptions > 1 ? ` (${job.preemptions} times in all)` : '';
  return `${clockTime(job.preemption.at)}: ${job.preemption.text}${often}`;
}

/** `{ root, problem, add, end }`: the frame of a view of `noun`; `add` puts elements into it. */
export function frame(model, noun, extra = []) {
  const state = node('span', 'carrel-now', { 'aria-live': 'polite' });
  const since = node('span', 'carrel-since');
  const name = node('strong', 'carrel-name');
  const place = node('span', 'carrel-place');
  const reason = node('div', 'carrel-reason', { 'aria-live': 'polite' });
  const past = node('div', 'carrel-past');
  const steering = actions(model, extra);
  const progress = progressBar();
  const head = node('div', 'carrel-head', {}, state, name, place, since, steering.bar);
  const root = node('section', 'carrel-view carrel-job', {}, head, reason, steering.problem, progress.row, past);
  const trouble = troubleLine(model);
  let shown = '';
  root.append(trouble);

  function tick() {
    const job = model.get('job');
    const now = Date.now() / 1000;
    setText(since, sinceWords(job, now));
    progress.update(job, now);
  }

  function draw() {
    const job = model.get('job');
    root.setAttribute('aria-label', `${noun} ${job.name}`);
    if (shown !== job.phase) {
      shown = job.phase;
      state.replaceChildren(stateChip(job));
    }
    root.dataset.phase = job.phase;
    if (name.textContent !== job.name) {
      name.replaceChildren(nameOf(job, pageOf(model.get('console_url'), job)));
    }
    setText(place, placeWords(job));
    setSentence(reason, [job.reason, job.help].filter(Boolean).join(' '));
    setSentence(past, preemptionWords(job));
    steering.update();
    tick();
  }

  model.on('change:job', draw);
  draw();
  const timer = setInterval(() => !model.get('job').over && tick(), 1000);
  return {
    root,
    problem: steering.problem,
    add: (...elements) => elements.forEach(element => root.insertBefore(element, trouble)),
    end() {
      clearInterval(timer);
      model.off('change:job', draw);
    }
  };
}
