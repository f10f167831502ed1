"""Endpoints: replicas by demand, rolled out one at a time."""
