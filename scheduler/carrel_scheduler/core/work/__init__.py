"""Workloads as the core keeps them: gangs and their steps, tasks, who waits."""
