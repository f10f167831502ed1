// The plugin for one's work: notifications, the Running panel, launcher cards, "Run as job".
import { iconsOf } from './icons.js';
import { node } from './parts.js';
import { notices } from './notices.js';
import { toolbarExtension } from './notebookjob.js';
import { formPanel, jobsPanel } from './panels.js';
import { queueItem } from './queue.js';
import { runningJobs } from './running.js';
import { ask } from './server.js';
import { workFeed } from './work.js';

const CATEGORY = 'Carrel';
// JupyterLab's own: Notebook 0, Console 20, Other 100.
const CATEGORY_RANK = 10;
const CONSOLE_PATH = '/services/console/';
const CARDS = [
  { id: 'training', label: 'Train', title: 'Submit a training' },
  { id: 'distributed', label: 'Train on several workers', title: 'Submit distributed training' },
  { id: 'experiment', label: 'Sweep', title: 'Submit an experiment' },
  { id: 'inference', label: 'Serve', title: 'Open an endpoint' },
  { id: 'tensorboard', label: 'TensorBoard', title: 'Start TensorBoard' }
];

/** Opens elements as tabs; one that is open already is only shown. */
function tabs(app, { apputils, widgets, icons }) {
  const { MainAreaWidget, Dialog, showDialog } = apputils;
  const open = new Map();
  if (app.name !== 'JupyterLab') {
    // Notebook has room for one document only.
    return (id, label, make) => {
      const { element, end } = make();
      const body = new widgets.Widget({ node: element });
      void showDialog({ title: label, body, buttons: [Dialog.cancelButton({ label: 'Close' })] }).then(end);
    };
  }
  return (id, label, make, { mode = 'tab-after', kind = 'job' } = {}) => {
    const known = open.get(id);
    if (known && !known.isDisposed) {
      app.shell.activateById(known.id);
      return known;
    }
    const { element, end } = make();
    const content = new widgets.Widget({ node: element });
    const tab = new MainAreaWidget({ content });
    tab.id = `carrel-${id}`;
    Object.assign(tab.title, { label, icon: icons[kind], closable: true });
    tab.disposed.connect(end);
    open.set(id, tab);
    app.shell.add(tab, 'main', { mode });
    app.shell.activateById(tab.id);
    return tab; // a launcher that gets it closes
  };
}

function addCommands(app, launcher, { show, icons, feed, notification }) {
  const jobs = () => show('jobs', 'Jobs', () => jobsPanel(feed));
  const add = (id, label, caption, icon, execute) => app.commands.addCommand(id, { label, caption, icon, execute });
  add('carrel:jobs', 'Jobs', 'Your jobs and what they do', icons.job, jobs);
  for (const { id, label, title } of CARDS) {
    const form = args => () => formPanel({ kind: id, title, folder: args.cwd ?? '', done: feed.soon });
    add(`carrel:new-${id}`, label, title, icons[id], args => show(`new-${id}`, label, form(args), { kind: id }));
  }
  add('carrel:console', 'Web console', 'Your work, the queue and the cluster in the web console', icons.console, () => {
    window.open(feed.now.console_url || CONSOLE_PATH, '_blank', 'noopener');
  });
  add('carrel:tutorial', 'Tutorial', 'A notebook that goes through all kinds of work', icons.tutorial, async () => {
    try {
      const { path } = await ask('tutorial', 'POST');
      await app.commands.execute('docmanager:open', { path });
    } catch (error) {
      notification.error(`The tutorial cannot be opened: ${error.message}`, { autoClose: false });
    }
  });
  const commands = ['jobs', ...CARDS.map(({ id }) => `new-${id}`), 'console', 'tutorial'];
  commands.forEach((command, rank) => {
    launcher?.add({ command: `carrel:${command}`, category: CATEGORY, categoryRank: CATEGORY_RANK, rank });
  });
  return jobs;
}

/** JupyterLab's modules come in; those that an application lacks are null. */
export function makeWorkPlugin(modules) {
  const { apputils, widgets, launcher, running, statusbar, signaling, components } = modules;
  return {
    id: 'carrel:work',
    description: 'Your jobs: notifications, the Running panel, forms, notebooks as jobs.',
    autoStart: true,
    optional: [launcher?.ILauncher, running?.IRunningSessionManagers, statusbar?.IStatusBar].filter(Boolean),
    activate: (app, ...services) => {
      const launch = launcher ? services.shift() : null;
      const managers = running ? services.shift() : null;
      const bar = statusbar ? services.shift() : null;
      const feed = workFeed();
      const icons = iconsOf(components.LabIcon);
      const show = tabs(app, { apputils, widgets, icons });
      const jobs = addCommands(app, launch, { show, icons, feed, notification: apputils.Notification });
      managers?.add(runningJobs({ Signal: signaling.Signal, icon: icons.job, feed, open: jobs }));
      bar?.registerStatusItem('carrel:work', {
        item: new widgets.Widget({ node: node('div', '', {}, queueItem(feed, jobs)) }),
        align: 'right',
        rank: 999
      });
      notices(apputils.Notification, feed, jobs);
      const open = options =>
        show(`run-${options.preset.notebook}`, 'Run as job', () =>
          formPanel({ kind: 'notebook', done: feed.soon, ...options }), { mode: 'split-right' });
      app.docRegistry.addWidgetExtension(
        'Notebook',
        toolbarExtension({ ToolbarButton: apputils.ToolbarButton, icon: icons.job, open })
      );
      void app.restored.then(feed.start);
    }
  };
}
