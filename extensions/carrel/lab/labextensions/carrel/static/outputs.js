// Outputs that this page has not received itself: of cells that ran while it was closed, and of cells
// that another page runs. The server keeps them (carrel.workspace.recorder); here they are put into
// the cells. A cell that is run is saved first, so that the file knows where its outputs belong.
import { ask } from './server.js';

const PAUSE_MS = 400;
const taken = new WeakSet(); // notebooks with outputs that this page has to save

function find(panel, { cell, code }) {
  const cells = panel.content.widgets.filter(one => one.model.type === 'code');
  const same = cells.filter(one => one.model.sharedModel.getId() === cell);
  const likely = same.length ? same : cells.filter(one => one.model.sharedModel.getSource() === code);
  return likely.length === 1 ? likely[0] : null;
}

/** Make the cell's outputs these; what is the same stays, so that a live view is not made anew. */
function put(outputs, wanted) {
  const same = index => JSON.stringify(outputs.get(index).toJSON()) === JSON.stringify(wanted[index]);
  let first = 0;
  while (first < Math.min(outputs.length, wanted.length) && same(first)) {
    first += 1;
  }
  if (outputs.length > wanted.length || first < outputs.length - 1) {
    outputs.fromJSON(wanted);
    return;
  }
  if (first < outputs.length) {
    outputs.set(first, wanted[first]);
    first += 1;
  }
  wanted.slice(first).forEach(output => outputs.add(output));
}

function show(panel, run) {
  const cell = find(panel, run);
  if (!cell) {
    return;
  }
  const model = panel.context.model;
  const dirty = model.dirty;
  cell.model.trusted = true; // its own code made them, here
  put(cell.model.outputs, run.outputs);
  cell.model.executionCount = run.execution_count;
  cell.model.executionState = run.running ? 'running' : 'idle';
  if (run.mine) {
    taken.add(panel);
  } else {
    model.dirty = dirty; // the page that runs it saves it
  }
}

/** A page without changes of its own follows the file; to others the server's writing is no change. */
async function followFile(context, { modified, written, hash }) {
  const known = context._contentsModel; // no public way tells a context that it is up to date
  if (!known || !modified || known.last_modified === modified) {
    return false;
  }
  if (!context.model.dirty) {
    await context.revert();
    return true;
  }
  if (written.includes(known.last_modified)) {
    Object.assign(known, { last_modified: written[written.length - 1], hash });
  }
  return false;
}

/** Keep a notebook up to date with what is executed in its kernel by others. */
function follow(panel) {
  const { sessionContext } = panel.context;
  let kernel = null;
  let seen = 0;
  let asking = false;
  let again = false;

  async function read(from) {
    try {
      const answer = await ask(`outputs/${from.id}`, 'POST', { page: from.clientId, seen });
      if (from === kernel && !panel.isDisposed) {
        if (await followFile(panel.context, answer)) {
          seen = 0; // outputs that are in no file yet are shown once more
          again = true;
          return;
        }
        seen = answer.version;
        answer.runs.forEach(run => show(panel, run));
      }
    } catch (error) {
      if (error.status !== 404) {
        console.warn('Outputs of the server were not read:', error);
      }
    }
  }

  async function soon() {
    again = true;
    if (asking) {
      return;
    }
    asking = true;
    while (again && kernel && !panel.isDisposed) {
      again = false;
      const began = Date.now();
      await read(kernel);
      // Large outputs take their time: never more than half of it is spent on them.
      await new Promise(done => setTimeout(done, Math.max(PAUSE_MS, Date.now() - began)));
    }
    asking = false;
  }

  const published = (_, message) => {
    const { session, msg_type: kind } = message.parent_header;
    if (kind === 'execute_request' && session !== kernel?.clientId) {
      void soon();
    }
  };
  const connection = (_, status) => status === 'connected' && void soon();

  function attach() {
    kernel?.iopubMessage.disconnect(published);
    kernel?.connectionStatusChanged.disconnect(connection);
    kernel = sessionContext.session?.kernel ?? null;
    seen = 0;
    kernel?.iopubMessage.connect(published);
    kernel?.connectionStatusChanged.connect(connection);
    if (kernel?.connectionStatus === 'connected') {
      void soon();
    }
  }

  sessionContext.kernelChanged.connect(attach);
  attach();
}

const sources = panel => JSON.stringify(panel.content.widgets.map(one => one.model.sharedModel.getSource()));

/** That a kernel adds its language to a notebook is no change that anybody has to save. */
async function unchanged(panel) {
  const before = sources(panel);
  await panel.context.sessionContext.ready;
  await panel.context.sessionContext.session?.kernel?.info;
  await new Promise(done => setTimeout(done)); // others that wait for the same come first
  if (!panel.isDisposed && !taken.has(panel) && sources(panel) === before) {
    panel.context.model.dirty = false;
  }
}

function saver(tracker) {
  const saving = new Set();
  return async notebook => {
    const panel = tracker.find(one => one.content === notebook);
    const context = panel?.context;
    if (!context || saving.has(context) || !context.model.dirty || context.model.readOnly) {
      return;
    }
    saving.add(context);
    try {
      await context.save();
    } finally {
      saving.delete(context);
    }
  };
}

/** `notebook` is JupyterLab's module. */
export function makeOutputsPlugin({ notebook }) {
  return {
    id: 'carrel:outputs',
    description: 'Shows what cells printed while no page was open, and what other pages run.',
    autoStart: true,
    optional: [notebook?.INotebookTracker].filter(Boolean),
    activate: (app, tracker) => {
      if (!tracker) {
        return; // a page without notebooks
      }
      const open = async panel => {
        await Promise.all([panel.context.ready, panel.revealed]);
        follow(panel);
        void unchanged(panel);
      };
      tracker.forEach(panel => void open(panel));
      tracker.widgetAdded.connect((_, panel) => void open(panel));
      const save = saver(tracker);
      notebook.NotebookActions.executionScheduled.connect((_, args) => void save(args.notebook));
    }
  };
}
