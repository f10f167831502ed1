"""Reasons in plain words, the same on every surface."""
