// The plugin for one's work: notifications, the Running panel, launcher cards, "Run as job".
import { node } from './parts.js';
import { notices } from './notices.js';
import { toolbarExtension } from './notebookjob.js';
import { formPanel, jobsPanel } from './panels.js';
import { queueItem } from './queue.js';
import { runningJobs } from './running.js';
import { workFeed } from './work.js';

const CATEGORY = 'Carrel';
const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161">
<path d="M3 4h18v2H3zM3 18h18v2H3z"/><path d="M5 8h14v8H5zm2 2v4h4v-4z" fill-rule="evenodd"/></g></svg>`;
const CARDS = [
  { id: 'training', label: 'Train', title: 'Submit a training' },
  { id: 'distributed', label: 'Train on several workers', title: 'Submit distributed training' },
  { id: 'experiment', label: 'Sweep', title: 'Submit an experiment' },
  { id: 'inference', label: 'Serve', title: 'Open an endpoint' },
  { id: 'tensorboard', label: 'TensorBoard', title: 'Start TensorBoard' }
];

/** Opens elements as tabs; one that is open already is only shown. */
function tabs(app, { apputils, widgets, icon }) {
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
  return (id, label, make, mode = 'tab-after') => {
    const known = open.get(id);
    if (known && !known.isDisposed) {
      app.shell.activateById(known.id);
      return known;
    }
    const { element, end } = make();
    const content = new widgets.Widget({ node: element });
    const tab = new MainAreaWidget({ content });
    tab.id = `carrel-${id}`;
    Object.assign(tab.title, { label, icon, closable: true });
    tab.disposed.connect(end);
    open.set(id, tab);
    app.shell.add(tab, 'main', { mode });
    app.shell.activateById(tab.id);
    return tab; // a launcher that gets it closes
  };
}

function addCommands(app, launcher, show, feed) {
  const jobs = () => show('jobs', 'Jobs', () => jobsPanel(feed));
  app.commands.addCommand('carrel:jobs', { label: 'Jobs', caption: 'Your jobs and what they do', icon: show.icon, execute: jobs });
  for (const { id, label, title } of CARDS) {
    app.commands.addCommand(`carrel:new-${id}`, {
      label,
      caption: title,
      icon: show.icon,
      execute: args => show(`new-${id}`, label, () => formPanel({ kind: id, title, folder: args.cwd ?? '', done: feed.soon }))
    });
  }
  ['carrel:jobs', ...CARDS.map(({ id }) => `carrel:new-${id}`)].forEach((command, rank) => {
    launcher?.add({ command, category: CATEGORY, rank });
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
      const icon = new components.LabIcon({ name: 'carrel:job', svgstr: ICON });
      const show = Object.assign(
        tabs(app, { apputils, widgets, icon }),
        { icon }
      );
      const jobs = addCommands(app, launch, show, feed);
      managers?.add(runningJobs({ Signal: signaling.Signal, icon, feed, open: jobs }));
      bar?.registerStatusItem('carrel:work', {
        item: new widgets.Widget({ node: node('div', '', {}, queueItem(feed, jobs)) }),
        align: 'right',
        rank: 999
      });
      notices(apputils.Notification, feed, jobs);
      const open = options =>
        show(`run-${options.preset.notebook}`, 'Run as job', () =>
          formPanel({ kind: 'notebook', done: feed.soon, ...options }), 'split-right');
      app.docRegistry.addWidgetExtension(
        'Notebook',
        toolbarExtension({ ToolbarButton: apputils.ToolbarButton, icon, open })
      );
      void app.restored.then(feed.start);
    }
  };
}
