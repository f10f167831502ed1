"""Translation of Kubernetes objects into events of the core, and of decisions back.

Pure: no sockets, no clock. What must be looked up (owners, claims) comes in as an argument.
"""
