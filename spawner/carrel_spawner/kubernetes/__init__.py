"""Workspaces as pods: KubeSpawner makes them, Carrel's scheduler says when and where.

``spawner`` puts it together; what is decided without a cluster has its own file: ``names``,
``pod``, ``belongings``, ``happening``, ``trouble``.
"""
