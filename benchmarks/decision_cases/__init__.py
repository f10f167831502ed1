"""Clusters on which single decisions of the core are timed, one module for each kind."""
