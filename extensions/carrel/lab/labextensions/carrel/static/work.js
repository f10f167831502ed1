// What this person's work does, asked of the workspace's server: often while the page is seen.
import { ask } from './server.js';

const SEEN_SECONDS = 1;
const HIDDEN_SECONDS = 20;

/** `{ now, listen, soon, start }`: listeners get `{ jobs, news, trouble, console_url }`. */
export function workFeed() {
  const listeners = new Set();
  let seen = '';
  let now = { jobs: [], news: [], trouble: '', console_url: '' };
  let timer = null;

  async function poll() {
    clearTimeout(timer);
    try {
      const answer = await ask(`work?seen=${encodeURIComponent(seen)}`);
      seen = answer.seen;
      if (answer.jobs) {
        now = answer;
        listeners.forEach(listener => listener(now));
      }
    } catch (error) {
      if (error.status === 404) {
        return; // this server has no scheduler: nothing to show, now or later
      }
    }
    timer = setTimeout(poll, 1000 * (document.hidden ? HIDDEN_SECONDS : SEEN_SECONDS));
  }

  document.addEventListener('visibilitychange', () => !document.hidden && timer && void poll());
  return {
    get now() {
      return now;
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    soon: () => void poll(),
    start: () => void poll()
  };
}
