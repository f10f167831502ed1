// The live view of one training.
import { clockTime } from './words.js';
import { ask, hasServer } from './server.js';
import { curve } from './curve.js';
import { node, progressOf, setSentence, setText, sinceWords, stateChip, tellShown, troubleLine } from './parts.js';

const VERBS = {
  suspend: { label: 'Suspend', doing: 'Suspending…', phases: ['pending', 'starting', 'running'] },
  resume: { label: 'Resume', doing: 'Resuming…', phases: ['stopped'] },
  delete: {
    label: 'Cancel',
    doing: 'Cancelling…',
    phases: ['pending', 'starting', 'running', 'preempting', 'stopped']
  }
};

/** Cancel, Suspend and Resume: they ask the workspace's server, so a busy kernel is no matter. */
function buttons(model) {
  const bar = node('div', 'carrel-buttons');
  const problem = node('div', 'carrel-trouble', { role: 'alert' });
  let asked = false;
  let doing = '';

  async function act(verb) {
    const { name, project } = model.get('job');
    asked = false;
    doing = verb;
    draw();
    setText(problem, '');
    try {
      if (hasServer()) {
        await ask(`jobs/${project}/${name}/${verb}`, 'POST');
      } else {
        model.send({ type: 'act', verb });
      }
    } catch (error) {
      doing = '';
      setText(problem, error.message);
      draw();
    }
  }

  function button(label, press, className = '') {
    const made = node('button', `carrel-button ${className}`, { type: 'button' }, label);
    made.addEventListener('click', press);
    return made;
  }

  function draw(focus = false) {
    const { phase, name, checkpoint } = model.get('job');
    if (asked && VERBS.delete.phases.includes(phase)) {
      const stays = checkpoint === null ? '' : '; its checkpoints stay';
      const sure = button(`Cancel ${name}${stays}`, () => void act('delete'), 'carrel-danger');
      bar.replaceChildren(
        sure,
        button('Keep it', () => {
          asked = false;
          draw(true);
        })
      );
      sure.focus();
      return;
    }
    const offered = Object.entries(VERBS).filter(([, verb]) => verb.phases.includes(phase));
    bar.replaceChildren(
      ...offered.map(([id, verb]) => {
        const press = id === 'delete' ? () => ((asked = true), draw()) : () => void act(id);
        const made = button(doing === id ? verb.doing : verb.label, press);
        made.dataset.verb = id;
        made.disabled = Boolean(doing);
        return made;
      })
    );
    if (focus) {
      bar.lastElementChild?.focus();
    }
  }

  let phase = null;
  const update = () => {
    if (model.get('job').phase !== phase) {
      phase = model.get('job').phase;
      doing = '';
      draw();
    }
  };
  update();
  return { bar, problem, update };
}

/** Progress as a bar and in words. */
function progressBar() {
  const fill = node('div', 'carrel-fill');
  const track = node('div', 'carrel-track', { role: 'progressbar', 'aria-valuemin': 0, 'aria-valuemax': 100 }, fill);
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

function storyWords(job) {
  if (!job.preemption) {
    return '';
  }
  const often = job.preemptions > 1 ? ` (${job.preemptions} times in all)` : '';
  return `${clockTime(job.preemption.at)}: ${job.preemption.told}${often}`;
}

function render({ model, el }) {
  const state = node('span', 'carrel-now', { 'aria-live': 'polite' });
  const since = node('span', 'carrel-since');
  const name = node('strong', 'carrel-name');
  const place = node('span', 'carrel-place');
  const reason = node('div', 'carrel-reason', { 'aria-live': 'polite' });
  const past = node('div', 'carrel-past');
  const figures = node('div', 'carrel-figures');
  const output = node('pre', 'carrel-lines', { tabindex: 0, 'aria-label': 'Last lines of its output' });
  const actions = buttons(model);
  const progress = progressBar();
  const head = node('div', 'carrel-head', {}, state, name, place, since, actions.bar);
  const root = node(
    'section', 'carrel-view carrel-job', {}, head, reason, actions.problem, progress.row, past, figures, output, troubleLine(model)
  );
  let shownState = '';

  function tick() {
    const job = model.get('job');
    const now = Date.now() / 1000;
    setText(since, sinceWords(job, now));
    progress.update(job, now);
  }

  function drawJob() {
    const job = model.get('job');
    root.setAttribute('aria-label', `Training ${job.name}`);
    if (shownState !== job.phase) {
      shownState = job.phase;
      state.replaceChildren(stateChip(job));
    }
    root.dataset.phase = job.phase;
    setText(name, job.name);
    setText(place, placeWords(job));
    setSentence(reason, [job.reason, job.help].filter(Boolean).join(' '));
    setSentence(past, storyWords(job));
    actions.update();
    tick();
  }

  function drawCurves() {
    const curves = Object.entries(model.get('curves')).filter(([, points]) => points.length);
    figures.hidden = !curves.length;
    figures.replaceChildren(...curves.map(([metric, points]) => curve(metric, points)));
  }

  function drawLines() {
    setText(output, model.get('lines').join('\n'));
    output.scrollTop = output.scrollHeight;
  }

  model.on('change:job', drawJob);
  model.on('change:curves', drawCurves);
  model.on('change:lines', drawLines);
  drawJob();
  drawCurves();
  drawLines();
  el.append(root);
  const timer = setInterval(() => !model.get('job').over && tick(), 1000);
  const hidden = tellShown(model);
  return () => {
    clearInterval(timer);
    model.off('change:job', drawJob);
    model.off('change:curves', drawCurves);
    model.off('change:lines', drawLines);
    hidden();
  };
}

export default { render };
