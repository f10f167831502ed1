"""Workloads in the core: gangs and their steps, tasks, waiting rows."""
