"""Persistent data: objects with resource versions, decisions, state changes, reports.

Everything said about the past (waits, GPU-seconds, preemptions) is computed from these rows only.
"""
