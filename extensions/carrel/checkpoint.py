"""Checkpoints and word of preemption, for jobs: see ``carrel.job.checkpoint``."""

from carrel.job.checkpoint import (
    every,
    exit_for_preemption,
    latest,
    on_preempt,
    preempted,
    restore,
    save,
)

__all__ = ["every", "exit_for_preemption", "latest", "on_preempt", "preempted", "restore", "save"]
