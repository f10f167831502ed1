"""The proxy in front of everything: one public port, routes that the Hub sets.

Routes, their REST API and the command line are those of the package ``configurable-http-proxy``, so
JupyterHub drives this proxy like any other. The way of the traffic is our own: bodies and messages
pass as they come, nothing waits to be complete, and no more is held than the far side can take.
"""
