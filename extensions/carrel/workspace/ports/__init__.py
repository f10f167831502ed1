"""Ports and tools of a workspace behind its own sign-in: ``jupyter-server-proxy`` with bounds."""
