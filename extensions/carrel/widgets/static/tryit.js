// A request of one's own to an endpoint, sent by the workspace's server with its token.
import { button } from './actions.js';
import { ask, hasServer } from './server.js';
import { node, setText } from './parts.js';

let boxes = 0;

function labelled(text, element) {
  const id = `carrel-try-${++boxes}`;
  element.id = id;
  return node('div', 'carrel-field', {}, node('label', '', { for: id }, text), element);
}

function pretty(answer) {
  try {
    return JSON.stringify(JSON.parse(answer.body), null, 1);
  } catch {
    return answer.body;
  }
}

/** The folded box; hidden where no workspace's server can be asked. */
export function tryBox(model) {
  const method = node('select', 'carrel-input', {}, ...['GET', 'POST', 'PUT', 'DELETE'].map(one => node('option', '', {}, one)));
  const path = node('input', 'carrel-input', { type: 'text', value: '/', spellcheck: 'false' });
  const body = node('textarea', 'carrel-input', { rows: 3, spellcheck: 'false', placeholder: '{"inputs": []}' });
  const status = node('div', 'carrel-soft', { role: 'status' });
  const answer = node('pre', 'carrel-lines', { tabindex: 0, role: 'region', 'aria-label': 'Answer' });
  const send = button('Send', () => void request());
  const bodyField = labelled('Body', body);
  const fold = node(
    'details', 'carrel-gang', {}, node('summary', '', {}, 'Try it'),
    node('div', 'carrel-fields', {}, labelled('Method', method), labelled('Path', path)),
    bodyField, send, status, answer
  );

  async function request() {
    const { name, project } = model.get('job');
    send.disabled = true;
    setText(status, 'Waiting for the answer…');
    setText(answer, '');
    try {
      const sent = { method: method.value, path: path.value, body: method.value === 'GET' ? null : body.value };
      const found = await ask(`endpoints/${project}/${name}/try`, 'POST', sent);
      const cut = found.cut ? ', only its beginning is shown' : '';
      setText(status, `Status ${found.status} after ${Math.round(found.seconds * 1000)} ms${cut}.`);
      setText(answer, pretty(found));
    } catch (error) {
      setText(status, error.message);
    }
    send.disabled = false;
  }

  const fits = () => (bodyField.hidden = method.value === 'GET');
  method.addEventListener('change', fits);
  fits();
  setText(status, '');
  setText(answer, '');
  fold.hidden = !hasServer();
  return fold;
}
