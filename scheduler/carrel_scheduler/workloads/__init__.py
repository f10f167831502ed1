"""Workloads: what a user asks for, its life cycle, and the loop that carries plans out."""
