"""Launching: from a workload to the tasks that an engine starts (specifications, ports, tokens)."""
