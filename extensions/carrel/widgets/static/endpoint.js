// The live view of an endpoint.
import { curve } from './curve.js';
import { frame } from './head.js';
import { node, setText, sinceWords, stateChip, tellShown, valueWords } from './parts.js';
import { tryBox } from './tryit.js';

const SAMPLED = ['requests/s', 'in flight', 'ready replicas'];

function milliseconds(seconds) {
  return `${valueWords(seconds * 1000)} ms`;
}

function factWords(endpoint) {
  const parts = [
    `${endpoint.ready} of ${endpoint.wanted} replicas ready`,
    endpoint.starting && `${endpoint.starting} starting`,
    `${valueWords(endpoint.requests_per_second)} requests/s`,
    `${endpoint.in_flight} in flight`,
    endpoint.latency_p50_seconds != null &&
      `latency ${milliseconds(endpoint.latency_p50_seconds)} (p99 ${milliseconds(endpoint.latency_p99_seconds)})`,
    endpoint.updating ? `revision ${endpoint.revision}, the next one is coming` : `revision ${endpoint.revision}`
  ];
  return parts.filter(Boolean).join(' · ');
}

function replicaRow(replica) {
  const now = Date.now() / 1000;
  return node(
    'tr', '', { 'data-phase': replica.phase },
    node('th', 'carrel-name', { scope: 'row' }, replica.name),
    node('td', '', {}, stateChip(replica), ` ${sinceWords(replica, now)}`),
    node('td', '', {}, replica.where),
    node('td', 'carrel-why', {}, replica.reason)
  );
}

function render({ model, el }) {
  const view = frame(model, 'Endpoint');
  const facts = node('div', 'carrel-counts');
  const link = node('a', 'carrel-link', { target: '_blank', rel: 'noopener' });
  const figures = node('div', 'carrel-figures');
  const body = node('tbody');
  const heads = ['Replica', 'State', 'Where', 'Why'].map(title => node('th', '', { scope: 'col' }, title));
  const table = node(
    'table', 'carrel-table', {}, node('caption', '', {}, 'Replicas'), node('thead', '', {}, node('tr', '', {}, ...heads)), body
  );
  view.add(facts, link, figures, table, tryBox(model));

  function drawFacts() {
    const endpoint = model.get('endpoint');
    setText(facts, factWords(endpoint));
    setText(link, endpoint.url);
    link.href = endpoint.url || '#';
  }

  function drawReplicas() {
    const replicas = model.get('replicas');
    table.hidden = !replicas.length;
    body.replaceChildren(...replicas.map(replicaRow));
  }

  function drawSamples() {
    const samples = model.get('samples');
    const start = samples.length ? samples[0][0] : 0;
    figures.hidden = samples.length < 2;
    if (figures.hidden) {
      return;
    }
    figures.replaceChildren(
      ...SAMPLED.map((name, index) =>
        curve(name, samples.map(sample => [Math.round(sample[0] - start), sample[index + 1]]), 'second')
      )
    );
  }

  const parts = { endpoint: drawFacts, replicas: drawReplicas, samples: drawSamples };
  for (const [trait, draw] of Object.entries(parts)) {
    model.on(`change:${trait}`, draw);
    draw();
  }
  el.append(view.root);
  const hidden = tellShown(model, view.root);
  return () => {
    view.end();
    Object.entries(parts).forEach(([trait, draw]) => model.off(`change:${trait}`, draw));
    hidden();
  };
}

export default { render };
