"""JupyterHub assembled for Carrel: configuration, sign-in, pages, `carrel up`, the console.

``config.install`` is the one call that makes a Hub ours; ``up`` runs a whole machine with it.
"""
