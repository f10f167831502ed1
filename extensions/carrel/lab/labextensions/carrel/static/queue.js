// The item in the status bar for one's work: how much runs and how much is pending.
const RUNNING = ['starting', 'running', 'preempting'];

/** `2 running · 1 pending`, empty when nothing does. */
export function queueWords(jobs) {
  const running = jobs.filter(job => RUNNING.includes(job.phase)).length;
  const pending = jobs.filter(job => job.phase === 'pending').length;
  return [running && `${running} running`, pending && `${pending} pending`].filter(Boolean).join(' · ');
}

/** The element; `open` is called when it is clicked. */
export function queueItem(feed, open) {
  const item = document.createElement('button');
  item.className = 'carrel-queue';
  item.type = 'button';
  item.hidden = true;
  item.addEventListener('click', open);
  feed.listen(({ jobs }) => {
    const words = queueWords(jobs);
    const next = jobs.filter(job => job.phase === 'pending' && job.place);
    const places = next.map(job => `${job.name}: place ${job.place}`);
    item.hidden = !words;
    if (item.textContent !== words) {
      item.textContent = words;
      item.setAttribute('aria-label', `Your jobs: ${words}`);
    }
    item.title = ['Your jobs', ...places, 'Click to see them.'].join('\n');
  });
  return item;
}
