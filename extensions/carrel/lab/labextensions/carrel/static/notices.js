// Notifications of one's own work. Each is shown once; what went well goes away by itself.
const LEVELS = { success: 'success', info: 'info', warning: 'warning', error: 'error' };
const SHORT_MILLISECONDS = 8000;
const MOST_AT_ONCE = 3;

/** Shows news as they come; `open` is called for "Show". */
export function notices(notification, feed, open) {
  const actions = [{ label: 'Show', callback: () => open() }];

  function show(one) {
    const stays = one.level === 'error' || one.level === 'warning';
    notification.emit(one.text, LEVELS[one.level] ?? 'default', {
      autoClose: stays ? false : SHORT_MILLISECONDS,
      actions
    });
  }

  return feed.listen(({ news }) => {
    const rest = news.length - MOST_AT_ONCE;
    news.slice(-MOST_AT_ONCE).forEach(show);
    if (rest > 0) {
      notification.emit(`${rest} more of your jobs started, ended or were preempted.`, 'info', {
        autoClose: SHORT_MILLISECONDS,
        actions
      });
    }
  });
}
