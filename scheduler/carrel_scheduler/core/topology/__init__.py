"""Topology between nodes: levels, the domains that they make, and where a group lies together."""
