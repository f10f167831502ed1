"""What workloads ask for is counted again when the kinds of GPUs in the cluster change.

GPU memory and MIG profiles count as what they take at most on the nodes that are known.
"""

from carrel_scheduler.core.changes.asking import ask, stop_asking
from carrel_scheduler.core.columns import Columns


def recount_needs(state: Columns) -> None:
    """Let everybody whose tasks count for more or less now ask for that."""
    renewed = state.shapes.renewed()
    if not renewed:
        return
    jobs = [job for _, job in sorted(state.jobs.by_uid.items()) if job.shape.id in renewed]
    for job in jobs:
        stop_asking(state, job)
    for job in jobs:
        job.shape = renewed[job.shape.id]
        ask(state, job)
