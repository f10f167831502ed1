"""Translation of Kubernetes' objects into the core's terms, and of its answers back.

Pure: no sockets, no clock. What must be looked up (owners, claims) comes in as an argument.
"""
