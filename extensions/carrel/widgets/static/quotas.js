// The quota lines of one's projects, live.
import { quotaBar } from './quota.js';
import { node, tellShown, troubleLine } from './parts.js';

function line(project) {
  return node(
    'div',
    'carrel-quota',
    {},
    node('strong', 'carrel-name', {}, project.name),
    quotaBar(project, 200, 14),
    node('span', 'carrel-quota-words', {}, project.words),
    ...project.budgets.map(words => node('span', 'carrel-quota-words', {}, words))
  );
}

function render({ model, el }) {
  const list = node('div', 'carrel-quotas');
  const root = node('section', 'carrel-view', { 'aria-label': 'GPUs of your projects' }, list, troubleLine(model));

  function draw() {
    const projects = model.get('projects');
    list.replaceChildren(
      ...projects.flatMap((project, index) => {
        const begins = project.department && project.department !== projects[index - 1]?.department;
        const heading = node('h4', 'carrel-department', {}, `Department ${project.department}`);
        return begins ? [heading, line(project)] : [line(project)];
      })
    );
    if (!projects.length) {
      list.append(node('p', 'carrel-empty', {}, 'You are in no project yet.'));
    }
  }

  model.on('change:projects', draw);
  draw();
  el.append(root);
  const hidden = tellShown(model, root);
  return () => {
    model.off('change:projects', draw);
    hidden();
  };
}

export default { render };
