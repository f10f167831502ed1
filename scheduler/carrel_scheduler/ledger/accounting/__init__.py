"""Use of resources, computed from the rows of the past: spans of time, and their sums."""
