// The live view of one training.
import { curve } from './curve.js';
import { frame } from './head.js';
import { node, setText, tellShown } from './parts.js';
import { tensorBoardButton } from './tensorboard.js';

const MANY = 4;

/** The members of a gang: one line each, folded away when they are many. */
function memberList() {
  const summary = node('summary');
  const list = node('ul', 'carrel-members');
  const fold = node('details', 'carrel-gang', {}, summary, list);
  let drawn = '';
  return {
    fold,
    update(members) {
      fold.hidden = !members.length;
      const key = JSON.stringify(members);
      if (key === drawn) {
        return;
      }
      if (!drawn) {
        fold.open = members.length <= MANY;
      }
      drawn = key;
      const moving = members.filter(member => member.running).length;
      setText(summary, `${members.length} members: ${moving} running`);
      list.replaceChildren(
        ...members.map(member =>
          node(
            'li', '', {},
            node('span', 'carrel-number', {}, String(member.index)),
            ` ${[member.where, member.text].filter(Boolean).join(' · ')}`
          )
        )
      );
    }
  };
}

function render({ model, el }) {
  const board = tensorBoardButton(model, text => setText(view.problem, text));
  const view = frame(model, 'Training', [board.place]);
  const gang = memberList();
  const figures = node('div', 'carrel-figures');
  const output = node('pre', 'carrel-lines', {
    tabindex: 0, role: 'region', 'aria-label': 'Last lines of its output'
  });
  view.add(gang.fold, figures, output);

  const drawMembers = () => gang.update(model.get('job').members);

  function drawCurves() {
    const curves = Object.entries(model.get('curves')).filter(([, points]) => points.length);
    figures.hidden = !curves.length;
    figures.replaceChildren(...curves.map(([metric, points]) => curve(metric, points)));
  }

  function drawLines() {
    setText(output, model.get('lines').join('\n'));
    output.scrollTop = output.scrollHeight;
  }

  const parts = { job: drawMembers, curves: drawCurves, lines: drawLines };
  for (const [trait, draw] of Object.entries(parts)) {
    model.on(`change:${trait}`, draw);
    draw();
  }
  el.append(view.root);
  const hidden = tellShown(model, view.root);
  return () => {
    board.end();
    view.end();
    Object.entries(parts).forEach(([trait, draw]) => model.off(`change:${trait}`, draw));
    hidden();
  };
}

export default { render };
