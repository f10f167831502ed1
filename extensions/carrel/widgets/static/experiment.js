// The live view of an experiment.
import { button } from './actions.js';
import { frame } from './head.js';
import { node, setSentence, tellShown, valueWords } from './parts.js';
import { ask, hasServer } from './server.js';
import { tensorBoardButton } from './tensorboard.js';
import { historyChart, importanceChart, parallelChart } from './charts.js';
import { trialTable } from './trials.js';

const COUNTED = { completed: 'completed', running: 'running', waiting: 'pending', pruned: 'pruned', failed: 'failed', stopped: 'stopped' };

function countWords(search) {
  const counts = Object.entries(COUNTED)
    .filter(([state]) => search.counts[state])
    .map(([state, word]) => `${search.counts[state]} ${word}`);
  const how = [search.sampler, search.pruner === 'none' ? '' : `${search.pruner} pruner`];
  const rest = `${search.parallelism} at once · ${how.filter(Boolean).join(', ')}`;
  return [...counts, rest].join(' · ');
}

function bestWords(search) {
  if (!search.best) {
    return '';
  }
  const { number, value, parameters } = search.best;
  const said = Object.entries(parameters).map(
    ([name, one]) => `${name} ${typeof one === 'number' ? valueWords(one) : one}`
  );
  const after = said.length ? ` with ${said.join(', ')}` : '';
  return `Best: trial ${number}, ${search.metric} \`${valueWords(value)}\`${after}.`;
}

/** Makes something of the best trial: a training with its parameters, or an endpoint. */
function bestButtons(model, told) {
  const place = node('div', 'carrel-buttons carrel-use');
  const made = node('span', 'carrel-soft', { role: 'status' });
  const use = kind => async () => {
    const { name, project } = model.get('job');
    told('');
    try {
      const { workload } = await ask(`experiments/${project}/${name}/best`, 'POST', { kind });
      setSentence(made, `\`${workload.name}\` was submitted.`);
    } catch (error) {
      told(error.message);
    }
  };
  place.append(
    button('Train with the best', () => void use('training')()),
    button('Serve the best', () => void use('inference')()),
    made
  );
  setSentence(made, '');
  return place;
}

function render({ model, el }) {
  const board = tensorBoardButton(model, text => setSentence(view.problem, text));
  const view = frame(model, 'Experiment', [board.place]);
  const counts = node('div', 'carrel-counts');
  const best = node('div', 'carrel-best-words', { 'aria-live': 'polite' });
  const using = bestButtons(model, text => setSentence(view.problem, text));
  const charts = node('div', 'carrel-charts');
  const table = trialTable(model, number => {
    for (const line of charts.querySelectorAll('.carrel-path')) {
      line.classList.toggle('carrel-path-picked', line.dataset.number === String(number));
    }
  });
  view.add(counts, best, using, charts, table.place);

  function draw() {
    const search = model.get('search');
    const trials = model.get('trials');
    setSentence(counts, countWords(search));
    setSentence(best, bestWords(search));
    using.hidden = !search.best || !hasServer();
    const drawn = [historyChart(trials, search), parallelChart(trials, search), importanceChart(search)];
    charts.replaceChildren(...drawn.filter(Boolean));
    table.update();
  }

  const traits = ['change:search', 'change:trials'];
  let due = false;
  const soon = () => {
    if (!due) {
      due = true;
      queueMicrotask(() => ((due = false), draw())); // both traits come in one message
    }
  };
  traits.forEach(trait => model.on(trait, soon));
  draw();
  el.append(view.root);
  const hidden = tellShown(model, view.root);
  return () => {
    board.end();
    view.end();
    traits.forEach(trait => model.off(trait, soon));
    hidden();
  };
}

export default { render };
