// Notifications of one's own work. Each is shown once; what went well goes away by itself. At most
// three stand there at a time: a job's news replace its former ones, and what does not fit is counted
// in the third.
const LEVELS = { success: 'success', info: 'info', warning: 'warning', error: 'error' };
const SHORT_MILLISECONDS = 8000;
const MOST_ALONE = 2;

/** Shows news as they come; `open` is called for "Show". */
export function notices(notification, feed, open) {
  const actions = [{ label: 'Show', callback: () => open() }];
  let shown = [];
  let counted = null;

  function stands(one) {
    return notification.manager.has(one.id) && Date.now() < one.until;
  }

  function emit(text, level) {
    const stays = level === 'error' || level === 'warning';
    const id = notification.emit(text, LEVELS[level] ?? 'default', { autoClose: stays ? false : SHORT_MILLISECONDS, actions });
    return { id, stays, until: stays ? Infinity : Date.now() + SHORT_MILLISECONDS };
  }

  function count() {
    const again = counted !== null && stands(counted);
    const number = again ? counted.number + 1 : 1;
    const text = number === 1 ? 'One more of your jobs has news.' : `${number} more of your jobs have news.`;
    if (again) {
      notification.update({ id: counted.id, message: text, autoClose: SHORT_MILLISECONDS, actions });
      counted = { ...counted, number, until: Date.now() + SHORT_MILLISECONDS };
    } else {
      counted = { ...emit(text, 'info'), number };
    }
  }

  function show(one) {
    const job = `${one.project}/${one.name}`;
    shown.filter(other => other.job === job).forEach(other => notification.dismiss(other.id));
    shown = shown.filter(other => other.job !== job && stands(other));
    const matters = one.level === 'error' || one.level === 'warning';
    const first = shown.find(other => matters && !other.stays);
    if (shown.length >= MOST_ALONE && !first) {
      return count();
    }
    if (shown.length >= MOST_ALONE) {
      notification.dismiss(first.id);
      shown = shown.filter(other => other !== first);
    }
    shown.push({ ...emit(one.text, one.level), job });
  }

  return feed.listen(({ news }) => news.forEach(show));
}
