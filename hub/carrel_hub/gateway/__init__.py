"""The gateway: the authenticated way to everything that listens on a port of a task.

A service of the Hub in a process of its own (``app``). It learns from the scheduler's event stream
which workloads have routes and where their servers are (``routing``), asks the Hub who comes
(``identity``, ``signin``), decides what they may use (``access``), picks a server (``balancing``),
and passes requests and answers on (``forwarding``, ``exchanges``, ``upstream``, ``headers``). It
reports its load to the scheduler, which scales endpoints by it (``load_reports``).
"""
