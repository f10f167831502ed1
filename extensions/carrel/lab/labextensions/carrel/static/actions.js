// The buttons of one piece of work. They ask the workspace's server, so a busy kernel is no matter.
import { ask, hasServer } from './server.js';
import { node, setText } from './parts.js';

const ACTIVE = ['pending', 'starting', 'running', 'preempting'];
const VERBS = {
  suspend: { label: 'Suspend', doing: 'Suspending…', phases: ['pending', 'starting', 'running'] },
  resume: { label: 'Resume', doing: 'Resuming…', phases: ['stopped'] },
  delete: { label: 'Cancel', doing: 'Cancelling…', phases: [...ACTIVE, 'stopped'] }
};

/** A button of ours. */
export function button(label, press, className = '') {
  const made = node('button', `carrel-button ${className}`, { type: 'button' }, label);
  made.addEventListener('click', press);
  return made;
}

/** Does something to the work that `model.get('job')` is; the kernel does it where no server is. */
async function steer(model, verb) {
  const { name, project } = model.get('job');
  if (hasServer()) {
    await ask(`jobs/${project}/${name}/${verb}`, 'POST');
  } else {
    model.send({ type: 'act', verb });
  }
}

/** Suspend, Resume and Cancel: `{ bar, problem, update }`; `extra` are further elements. */
export function actions(model, extra = []) {
  const bar = node('div', 'carrel-buttons');
  const problem = node('div', 'carrel-trouble', { role: 'alert' });
  let asked = false;
  let doing = '';

  async function act(verb) {
    asked = false;
    doing = verb;
    draw();
    setText(problem, '');
    try {
      await steer(model, verb);
    } catch (error) {
      doing = '';
      setText(problem, error.message);
      draw();
    }
  }

  function askAgain() {
    const { name, checkpoint } = model.get('job');
    const taken = checkpoint === null ? '' : ' and its checkpoints';
    const sure = button(`Cancel ${name}${taken}`, () => void act('delete'), 'carrel-danger');
    bar.replaceChildren(
      sure,
      button('Keep it', () => {
        asked = false;
        draw(true);
      })
    );
    sure.focus();
  }

  function draw(focus = false) {
    const { phase } = model.get('job');
    if (asked && VERBS.delete.phases.includes(phase)) {
      askAgain();
      return;
    }
    const offered = Object.entries(VERBS).filter(([, verb]) => verb.phases.includes(phase));
    bar.replaceChildren(
      ...extra,
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
