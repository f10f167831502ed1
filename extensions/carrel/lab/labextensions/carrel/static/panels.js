// What opens in JupyterLab's main area: forms, and the table of one's work.
import { formView } from './form.js';
import { jobsTable } from './jobs.js';
import { node, pageOf } from './parts.js';
import { ask } from './server.js';

const EMPTY = 'Nothing yet: submit a training from the launcher, or begin a cell with %%train.';

/** A small stand-in for a widget's model over what the server tells. */
function feedModel(feed) {
  const heard = new Map();
  return {
    get: name => feed.now[name],
    send: () => {},
    on(event, listener) {
      heard.set(listener, feed.listen(listener));
    },
    off(event, listener) {
      heard.get(listener)?.();
      heard.delete(listener);
    }
  };
}

/** `{ element, end }`: all of one's work. */
export function jobsPanel(feed) {
  const link = job => pageOf(feed.now.console_url, job);
  const table = jobsTable(feedModel(feed), { title: 'Your jobs', none: EMPTY, steer: true, link });
  return { element: node('div', 'carrel-panel', {}, table.root), end: table.end };
}

/** `{ element, end }`: a form, once the server has told its fields. */
export function formPanel({ kind, title, folder = '', preset, before, done }) {
  const element = node('div', 'carrel-panel', {}, node('p', 'carrel-view', {}, 'Loading the form…'));
  const send = (given, dryRun) =>
    ask(`forms/${kind}${dryRun ? '?dry_run=true' : ''}`, 'POST', { given, folder });
  void ask(`forms/${kind}`).then(
    ({ fields, project }) => {
      const filled = { project, ...preset };
      element.replaceChildren(formView({ title, fields, preset: filled, send, before, done }));
    },
    error => element.replaceChildren(node('p', 'carrel-view carrel-trouble', { role: 'alert' }, error.message))
  );
  return { element, end: () => {} };
}
