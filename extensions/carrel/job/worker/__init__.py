"""A worker of an experiment: runs trials, or the items of a map, one after the other.

``python -m carrel.job.worker [--map] -- COMMAND``. Two processes: this one (``loop``) takes trials
from the scheduler and tells how they ended; the other (``child``) runs them, so that one that
crashes, or is killed for its memory, takes nothing along but itself: the next runs in a new child.
"""
