// Small pieces that all views are made of.
import { duration } from './words.js';

/** An element with a class, attributes and children. */
export function node(tag, className = '', attributes = {}, ...children) {
  const element = document.createElement(tag);
  if (className) {
    element.className = className;
  }
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Put text there only when it is new, so that nothing is announced twice. */
export function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
  element.hidden = !text;
}

/** A sentence with its `names` set off; replaced only when it is new. */
export function setSentence(element, sentence) {
  if (element.dataset.sentence === sentence) {
    return;
  }
  element.dataset.sentence = sentence;
  element.hidden = !sentence;
  element.replaceChildren(
    ...sentence.split('`').map((part, index) => (index % 2 ? node('b', '', {}, part) : part))
  );
}

/** The address of a job's page in the web console; empty where it is not known. */
export function pageOf(consoleUrl, job) {
  if (!consoleUrl) {
    return '';
  }
  const page = new URL(`jobs/${job.project}/${job.name}`, new URL(consoleUrl, window.location.href));
  return ['http:', 'https:'].includes(page.protocol) ? page.href : '';
}

/** A job's name, as a link to its page where there is an address. */
export function nameOf(job, address) {
  const attributes = { href: address, target: '_blank', rel: 'noopener' };
  return address ? node('a', 'carrel-link', attributes, job.name) : job.name;
}

/** Icon and word of a state. */
export function stateChip(job) {
  return node(
    'span',
    'carrel-state',
    { 'data-phase': job.phase },
    node('span', 'carrel-icon', { 'aria-hidden': 'true' }, job.icon),
    ` ${job.word}`
  );
}

/** Since when it is in its state, in words; `now` in epoch seconds. */
export function sinceWords(job, now) {
  if (job.phase === 'pending' && job.queued_at) {
    return `for ${duration(now - job.queued_at)}`;
  }
  if (job.over) {
    const ran = job.started_at && job.ended_at ? job.ended_at - job.started_at : null;
    return ran === null ? '' : `after ${duration(ran)}`;
  }
  return job.started_at ? `for ${duration(now - job.started_at)}` : '';
}

/** How far it is: `{ share, words }`, or null when it does not say. */
export function progressOf(job, now) {
  const p = job.progress;
  if (!p) {
    return null;
  }
  const done = p.done.toLocaleString('en');
  if (!p.total) {
    return { share: null, words: `${done} ${p.unit}s` };
  }
  const share = Math.min(1, p.done / p.total);
  const parts = [`${done} of ${p.total.toLocaleString('en')} ${p.unit}s`];
  if (p.rate > 0 && job.phase === 'running' && p.done < p.total) {
    const needed = (p.total - p.done) / p.rate;
    const left = needed - Math.max(0, now - p.at);
    // Silent for twice as long as the rest should take, it is anything but almost done.
    if (left > 1) {
      parts.push(`${duration(left)} left`);
    } else if (left > -Math.max(needed, 10)) {
      parts.push('almost done');
    }
  }
  return { share, words: parts.join(' · ') };
}

/** A value of a curve in four digits. */
export function valueWords(value) {
  if (!Number.isFinite(value)) {
    return String(value);
  }
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : String(+value.toPrecision(4));
}

const SETTLE_MILLISECONDS = 250;

/**
 * Tell the kernel that this view is on the page, whether `element` can be seen there, and when it
 * is gone. What is scrolled away is told of changes more slowly, and its output is not followed.
 */
export function tellShown(model, element) {
  let seen = true;
  let next = true;
  let timer = null;
  const tell = () => {
    if (next !== seen) {
      seen = next;
      model.send({ type: seen ? 'seen' : 'unseen' });
    }
  };
  const watcher = new IntersectionObserver(entries => {
    next = entries[entries.length - 1].isIntersecting;
    clearTimeout(timer);
    timer = setTimeout(tell, SETTLE_MILLISECONDS);
  });
  model.send({ type: 'shown' });
  watcher.observe(element);
  return () => {
    watcher.disconnect();
    clearTimeout(timer);
    next = true;
    tell();
    model.send({ type: 'hidden' });
  };
}

/** `Last heard from the scheduler at 14:05:12 …`; empty while it is heard. */
export function silenceWords(since) {
  return since ? `Last heard from the scheduler at ${new Date(since * 1000).toLocaleTimeString()}: what is shown may be old.` : '';
}

/** The line that says why a view stands still, and that what it shows may be old. */
export function troubleLine(model) {
  const line = node('div', 'carrel-trouble', { role: 'status' });
  const update = () => {
    const words = model.get('trouble') || silenceWords(model.get('silent_since'));
    setText(line, words);
    line.parentElement?.toggleAttribute('data-stale', Boolean(words));
  };
  model.on('change:trouble', update);
  model.on('change:silent_since', update);
  update();
  return line;
}
