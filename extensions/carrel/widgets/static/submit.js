// The form for a new piece of work in a notebook.
import { ask, hasServer } from './server.js';
import { formView } from './form.js';
import { node } from './parts.js';

/** Asks the kernel, where no workspace's server can be asked. */
function kernelAsk(model) {
  const waiting = new Map();
  let number = 0;
  model.on('msg:custom', answer => {
    if (answer.type === 'answer') {
      waiting.get(answer.number)?.(answer);
      waiting.delete(answer.number);
    }
  });
  return (given, dryRun) =>
    new Promise(resolve => {
      waiting.set(++number, resolve);
      model.send({ type: 'ask', number, given, dry_run: dryRun });
    });
}

function render({ model, el }) {
  const kind = model.get('kind');
  const folder = model.get('folder');
  const viaServer = (given, dryRun) =>
    ask(`forms/${kind}${dryRun ? '?dry_run=true' : ''}`, 'POST', { given, folder });
  const form = formView({
    title: model.get('title'),
    fields: model.get('fields'),
    preset: model.get('preset'),
    send: hasServer() ? viaServer : kernelAsk(model),
    done(workload) {
      model.set('submitted', workload);
      model.save_changes();
    }
  });
  el.append(node('div', 'carrel-host', {}, form));
}

export default { render };
