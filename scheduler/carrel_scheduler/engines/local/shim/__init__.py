"""The process beside each task, outside the scheduler. Standard library only: it starts fast."""
