"""Workspaces as workloads: a thin JupyterHub spawner in front of Carrel's REST API.

The scheduler owns the state of a workspace; the spawner asks for a place, waits for it in plain
words, and translates between the Hub's life cycle and the scheduler's. What decides is pure and has
its own file (``options``, ``names``, ``verdict``, ``environment``); ``spawner`` puts it together.
"""
