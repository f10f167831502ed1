"""Workspaces as workloads: a thin JupyterHub spawner in front of Carrel's REST API.

The scheduler owns the state of a workspace; the spawner asks for room, waits for it, and translates
between the Hub's life cycle and the scheduler's. ``spawner`` and ``kubernetes.spawner`` are the
Hub's spawners, ``base`` is what they share. ``options`` checks what a user chose, ``workspace``
asks the scheduler, ``start`` waits, ``refusal`` says no. ``launch`` runs inside the workspace.
"""
