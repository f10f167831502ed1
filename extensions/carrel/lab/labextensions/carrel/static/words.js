// The product's words for times and amounts, the same as everywhere else.

/** `45 s`, `12 min`, `3 h 05 min`, `2 d 4 h`. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) {
    return `${whole} s`;
  }
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) {
    return `${minutes} min`;
  }
  const hours = Math.floor(minutes / 60);
  if (hours < 24) {
    const rest = minutes % 60;
    return rest ? `${hours} h ${String(rest).padStart(2, '0')} min` : `${hours} h`;
  }
  const rest = hours % 24;
  return rest ? `${Math.floor(hours / 24)} d ${rest} h` : `${Math.floor(hours / 24)} d`;
}

/** An amount of GPUs without needless digits. */
export function amount(gpus) {
  return String(Math.round(gpus * 100) / 100);
}

/** `14:32` in the reader's own zone. */
export function clockTime(epochSeconds) {
  return new Date(epochSeconds * 1000).toLocaleTimeString([], {
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23'
  });
}

/** The quota line in words: `3 of 4 guaranteed · 2 borrowed · 5 pending`. */
export function quotaWords(project) {
  const { gpus_allocated: used, gpus_borrowed: borrowed, gpus_waiting: pending } = project.use;
  const inside = used - borrowed;
  const parts = [
    project.quota.gpus === null
      ? `${amount(inside)} in use, no bound`
      : `${amount(inside)} of ${amount(project.quota.gpus)} guaranteed`
  ];
  if (borrowed > 0) {
    parts.push(`${amount(borrowed)} borrowed`);
  }
  if (pending > 0) {
    parts.push(`${amount(pending)} pending`);
  }
  return parts.join(' · ');
}

/** The same shortly: `3/4 +2 GPUs`. */
export function quotaShort(project) {
  const { gpus_allocated: used, gpus_borrowed: borrowed } = project.use;
  const quota = project.quota.gpus === null ? '' : `/${amount(project.quota.gpus)}`;
  return `${amount(used - borrowed)}${quota}${borrowed > 0 ? ` +${amount(borrowed)}` : ''} GPUs`;
}
