"""Workloads of several tasks: shape, membership, rendezvous."""
