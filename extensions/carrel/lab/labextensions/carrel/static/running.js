// One's jobs beside kernels and terminals in the Running panel.
import { ask } from './server.js';
import { duration } from './words.js';

const STOPPABLE = ['pending', 'starting', 'running', 'preempting'];

function detail(job) {
  const parts = [job.word, job.gpus, job.place && `place ${job.place}`];
  if (job.phase === 'running' && job.started_at) {
    parts[0] = `${job.word} for ${duration(Date.now() / 1000 - job.started_at)}`;
  }
  return parts.filter(Boolean).join(' · ');
}

/** The manager that JupyterLab's panel wants. `Signal`, `icon` are of JupyterLab. */
export function runningJobs({ Signal, icon, feed, open }) {
  const manager = {
    name: 'Jobs',
    supportsMultipleViews: false,
    running: () =>
      feed.now.jobs
        .filter(job => STOPPABLE.includes(job.phase))
        .map(job => ({
          id: job.uid,
          open,
          icon: () => icon,
          label: () => job.name,
          labelTitle: () => [`${job.project}/${job.name}`, job.reason.replaceAll('`', '')].filter(Boolean).join('\n'),
          detail: () => detail(job),
          shutdown: () => void ask(`jobs/${job.project}/${job.name}/delete`, 'POST').then(feed.soon, feed.soon)
        })),
    shutdownAll() {
      manager.running().forEach(item => item.shutdown());
    },
    refreshRunning: feed.soon,
    shutdownLabel: item => `Cancel ${item.label()} and its checkpoints`,
    shutdownAllLabel: 'Cancel all',
    shutdownAllConfirmationText: 'Cancel all your running and pending jobs? Their checkpoints go with them.'
  };
  manager.runningChanged = new Signal(manager);
  feed.listen(() => manager.runningChanged.emit(undefined));
  return manager;
}
