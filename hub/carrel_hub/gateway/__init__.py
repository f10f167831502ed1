"""The gateway: the authenticated way to everything that listens on a port of a task.

A service of the Hub in a process of its own. It learns from the scheduler's event stream which
workloads have routes and where their servers are (``feed``, ``table``), asks the Hub who comes
(``people``, ``signin``), and passes on what may come in (``door``, ``passing``) the way the proxy
does. What it counts it tells the scheduler, which scales endpoints by it (``reporting``).
"""
