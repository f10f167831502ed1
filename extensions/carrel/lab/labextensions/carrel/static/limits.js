// When this workspace stops and why: sentences from the scheduler's limits. No page, no clock.
import { clockTime, duration } from './words.js';

export const LAST_MINUTE = 60;

/**
 * What is coming, `null` when nothing is.
 *
 * `view` is the server's answer, `now` the server's present time in seconds, `skew` how far this
 * browser's clock is ahead of it.
 */
export function comingStop(view, now, skew = 0) {
  const limits = view?.limits;
  if (!limits || limits.stops_at === null) {
    return null;
  }
  const left = limits.stops_at - now;
  const warns = limits.warn_at !== null && now >= limits.warn_at;
  const level = left <= LAST_MINUTE ? 'last' : warns ? 'warn' : 'calm';
  return {
    at: limits.stops_at,
    left,
    level,
    idle: limits.stops_because === 'Idle',
    short: shortly(limits, view.project, left, level),
    sentence: fully(limits, view.project, left, skew),
    mayExtend: limits.may_extend && left > 0
  };
}

/** The offer on the button, `Keep for 1 h`. */
export function keepLabel(view) {
  return `Keep for ${duration(view.project?.interactive.extend_seconds ?? 3600)}`;
}

function shortly(limits, project, left, level) {
  const stops = left > 0 ? `Stops in ${duration(left)}` : 'Stops now';
  if (limits.stops_because === 'Idle') {
    return level === 'calm' ? `${stops} without work` : `${stops}: nobody works here`;
  }
  return `${stops}: time limit${project ? ` of ${project.name}` : ''}`;
}

// JupyterLab cuts a notification after 140 characters, so a sentence leaves room for a name.
function fully(limits, project, left, skew) {
  const when =
    left > 0 ? `at ${clockTime(limits.stops_at + skew)} (in ${duration(left)})` : 'now';
  if (limits.stops_because === 'Idle') {
    const timeout = project?.interactive.idle_timeout_seconds;
    const rule = timeout
      ? `${project.name} allows ${duration(timeout)} without work`
      : 'nobody works here';
    const help = left > 0 ? ' Run a cell or save a file to keep it.' : '';
    return `This workspace stops ${when}: ${rule}.${help}`;
  }
  const name = project ? ` of ${project.name}` : '';
  return `This workspace stops ${when}: time limit${name}. Save your notebooks; trainings go on.`;
}
