// The live view of a TensorBoard: a link, and below it its own page where the browser shows it there.
import { frame } from './head.js';
import { node, setText, tellShown } from './parts.js';
import { ask, hasServer } from './server.js';

const ASK_AGAIN_SECONDS = 1;
// Of names below localhost each is a site of its own, so a frame is sent no cookie.
const SITES_OF_THEIR_OWN = /(^|\.)localhost$/;
const IN_A_TAB = 'Here it opens in a tab: on localhost browsers keep it signed out inside of other pages.';

function render({ model, el }) {
  const view = frame(model, 'TensorBoard');
  const address = model.get('address');
  const link = node(
    'a', 'carrel-button', { href: address, target: '_blank', rel: 'noopener' }, 'Open TensorBoard'
  );
  const note = node('span', 'carrel-soft');
  const page = node('div', 'carrel-board');
  view.add(node('div', 'carrel-board-link', {}, link, ' ', note), page);
  const separate = model.get('separate_origins');
  const framed = separate && !SITES_OF_THEIR_OWN.test(window.location.hostname);
  let gone = false;
  let asking = false;

  async function answers() {
    const { project, name } = model.get('job');
    try {
      const request = { method: 'GET', path: 'data/environment', body: null };
      return (await ask(`endpoints/${project}/${name}/try`, 'POST', request)).status === 200;
    } catch {
      return false; // not yet, or the scheduler is away: it is asked again
    }
  }

  async function showOnceItAnswers() {
    asking = true;
    while (!gone && running() && !(await answers())) {
      await new Promise(resolve => setTimeout(resolve, ASK_AGAIN_SECONDS * 1000));
    }
    asking = false;
    if (gone || !running()) {
      return;
    }
    link.hidden = false;
    if (framed) {
      page.replaceChildren(
        node('iframe', 'carrel-board-page', { src: address, title: `TensorBoard ${model.get('job').name}` })
      );
    } else if (separate) {
      setText(note, IN_A_TAB);
    }
  }

  const running = () => model.get('job').phase === 'running';

  function draw() {
    if (!running()) {
      page.replaceChildren();
      link.hidden = true;
      setText(note, '');
    } else if (link.hidden && !asking && hasServer()) {
      void showOnceItAnswers();
    }
  }

  link.hidden = true;
  model.on('change:job', draw);
  draw();
  el.append(view.root);
  const hidden = tellShown(model, view.root);
  return () => {
    gone = true;
    view.end();
    model.off('change:job', draw);
    hidden();
  };
}

export default { render };
