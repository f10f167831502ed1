"""Placement constraints of pods, from nodes, pods and volumes."""
