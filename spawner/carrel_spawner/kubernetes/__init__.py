"""Workspaces as pods: KubeSpawner makes them, Carrel's scheduler says when and where.

``spawner`` puts it together; ``manifests`` and ``messages`` are decided without a cluster.
"""
