"""Clearing: which victims make room for a claim."""
