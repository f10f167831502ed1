"""``python -m carrel.job.notebook``: the program of a notebook job.

It reads the notebook, sets parameters, runs it cell by cell in a kernel and saves the executed
notebook after each, so that it can be opened while it runs.

The kernel's memory is lost when the job is preempted. The next attempt runs the same notebook (a
copy of what the first one read) from its first cell, which costs little where cells keep their own
checkpoints (``carrel.checkpoint``). Where a cell is tagged ``restart-point``, a run that got there
goes on from it: only the parameters and cells tagged ``always-run`` before it are run again, all
others keep their outputs.

``starter`` is the program of a single cell that was sent as a job.
"""
