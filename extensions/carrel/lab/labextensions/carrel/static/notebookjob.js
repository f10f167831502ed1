// "Run as job" in a notebook's toolbar: saves the notebook, then a form with its parameters.

const ASSIGNMENT = /^([A-Za-z_]\w*)\s*(?::[^=]+)?=\s*(.+?)\s*(?:#.*)?$/;
const WORDS = { True: 'true', False: 'false', None: 'null' };

/** A Python literal as JSON text, or null for what is no plain one. */
function literal(text) {
  if (text in WORDS) {
    return WORDS[text];
  }
  const quoted = /^(['"])([^'"\\]*)\1$/.exec(text);
  if (quoted) {
    return quoted[2];
  }
  return /^[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?$/.test(text) ? text.replaceAll('_', '') : null;
}

/** `NAME=VALUE` of each plain assignment in the cell tagged `parameters`. */
export function parametersOf(cells) {
  const tagged = cells.find(cell => cell.tags.includes('parameters'));
  return (tagged?.source ?? '')
    .split('\n')
    .map(line => ASSIGNMENT.exec(line))
    .filter(Boolean)
    .map(([, name, text]) => [name, literal(text)])
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}=${value}`);
}

function cellsOf(model) {
  return Array.from({ length: model.cells.length }, (_, index) => {
    const cell = model.cells.get(index);
    return { tags: cell.getMetadata('tags') ?? [], source: cell.sharedModel.getSource() };
  });
}

/** What JupyterLab asks for each notebook that it opens. `open` shows the form. */
export function toolbarExtension({ ToolbarButton, icon, open }) {
  return {
    createNew(panel, context) {
      const button = new ToolbarButton({
        icon,
        label: 'Run as job',
        tooltip: 'Run this notebook as a job: it goes on when you leave',
        onClick: () => {
          const path = context.localPath;
          open({
            title: `Run ${path} as a job`,
            preset: { notebook: path, param: parametersOf(cellsOf(panel.content.model)) },
            before: () => context.save()
          });
        }
      });
      panel.toolbar.insertAfter('cellType', 'carrelRunAsJob', button) ||
        panel.toolbar.addItem('carrelRunAsJob', button);
      return button;
    }
  };
}
