// The warning before a stop: one notification, again in the last minute, gone when it is not true.
import { keepLabel } from './limits.js';
import { clockTime } from './words.js';

/**
 * Shows and withdraws the warning. `notification` is JupyterLab's; `extend` asks for more time and
 * resolves to the server's view after it.
 */
export function stopWarning(notification, extend) {
  let shown = null;

  function withdraw() {
    if (shown) {
      notification.dismiss(shown.id);
      shown = null;
    }
  }

  async function keep() {
    withdraw();
    try {
      const view = await extend();
      const until = view.limits?.stops_at;
      const skew = Date.now() / 1000 - view.now;
      notification.success(
        until ? `Kept: this workspace now stops at ${clockTime(until + skew)}.` : 'Kept.',
        { autoClose: 8000 }
      );
    } catch (error) {
      notification.error(error.message, { autoClose: false });
    }
  }

  function show(view, stop, reason) {
    const actions = stop.mayExtend
      ? [{ label: keepLabel(view), displayType: 'accent', callback: () => void keep() }]
      : [];
    const type = stop.level === 'last' ? 'error' : 'warning';
    const id = notification.emit(stop.sentence, type, { autoClose: false, actions });
    shown = { id, reason, actions, type, sentence: stop.sentence };
  }

  return {
    /** Bring what is on the screen in line with what is coming. */
    update(view, stop) {
      if (!stop || stop.level === 'calm') {
        withdraw();
        return;
      }
      const reason = `${stop.level} ${stop.idle} ${stop.mayExtend}`;
      if (shown?.reason !== reason) {
        withdraw();
        show(view, stop, reason);
      } else if (stop.sentence !== shown.sentence && isOpen(shown.id)) {
        shown.sentence = stop.sentence;
        notification.update({ id: shown.id, message: stop.sentence, actions: shown.actions });
      }
    }
  };

  function isOpen(id) {
    return notification.manager.has(id);
  }
}
