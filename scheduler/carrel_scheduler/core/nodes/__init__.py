"""Nodes as columns, and their free capacity."""
