"""``carrel up``: a whole machine with one command.

It starts Hub, proxy, scheduler and console as children of one process group, watches over them, and
stops them together. Workspaces and jobs are not its children: they go on and are found again.
"""
