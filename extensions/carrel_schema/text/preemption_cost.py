"""The cost of a preemption in words: the same in reasons, notebook, console and command line.

The figure is final once the tasks have ended: until then a task may still save its work. So nothing
is said of the cost while the workload is preempting.
"""

from typing import Final

from carrel_schema.objects import Preemption

_MINUTE: Final = 60
_HOUR: Final = 3600


def lost_time(seconds: float) -> str:
    """A duration to the second below an hour: ``1 min 40 s``, ``2 min``, ``1 h 01 min``.

    Args:
        seconds: how much; below zero counts as zero. Lost work is counted, not rounded.
    """
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    minutes, rest = divmod(whole, _MINUTE)
    if whole < _HOUR:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def preemption_cost(last: Preemption) -> str:
    """The time that was lost and where the work goes on, as part of a sentence.

    Args:
        last: of a workload whose tasks have ended.
    """
    lost = f"{lost_time(last.lost_seconds)} of work was lost"
    if last.lost_seconds < 1:
        lost = "no work was lost"
    if last.checkpoint_step is not None:
        return f"{lost}; it goes on from the checkpoint at step {last.checkpoint_step:,}"
    if last.lost_seconds < 1:
        return lost
    return f"{lost}; it had no checkpoint, so it begins again"
