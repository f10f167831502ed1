"""Pods that others made and asked us to place: queued, bound and evicted beside our own work."""
