"""Scoring of nodes: their order, and the value of what a placement leaves on one."""
