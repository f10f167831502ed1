"""Choice of victims and of tasks to relocate: reclaim, preempt, both, consolidate."""
