"""Kubernetes' objects said in the core's words, and the core's answers in Kubernetes'.

Pure: no sockets, no clock. What must be looked up (owners, claims) comes in as an argument.
"""
