"""Nodes as columns, and what lies idle on them."""
