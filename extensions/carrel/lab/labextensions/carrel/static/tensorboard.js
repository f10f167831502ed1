// The button that opens TensorBoard on some work: it asks, waits until it is up, then is a link.
import { button } from './actions.js';
import { ask, hasServer } from './server.js';
import { node } from './parts.js';

const ASK_AGAIN_SECONDS = 2;

/** The element; hidden where no workspace's server can be asked. `told` shows a refusal. */
export function tensorBoardButton(model, told) {
  const place = node('span', 'carrel-tensorboard');
  let gone = false;

  function offer() {
    place.replaceChildren(button('TensorBoard', () => void open()));
  }

  async function open() {
    const { name, project } = model.get('job');
    const waiting = button('Starting TensorBoard…', () => {});
    waiting.disabled = true;
    place.replaceChildren(waiting);
    told('');
    try {
      let board = await ask(`jobs/${project}/${name}/tensorboard`, 'POST');
      while (!board.url && !gone) {
        if (board.over) {
          throw new Error(board.reason || 'TensorBoard ended before it was ready.');
        }
        waiting.title = board.reason;
        await new Promise(resolve => setTimeout(resolve, ASK_AGAIN_SECONDS * 1000));
        board = await ask(`jobs/${project}/${name}/tensorboard`);
      }
      link(board.url);
    } catch (error) {
      told(error.message);
      offer();
    }
  }

  function link(url) {
    const made = node(
      'a', 'carrel-button', { href: url, target: '_blank', rel: 'noopener' }, 'Open TensorBoard'
    );
    place.replaceChildren(made);
    made.focus();
  }

  place.hidden = !hasServer();
  offer();
  return { place, end: () => (gone = true) };
}
