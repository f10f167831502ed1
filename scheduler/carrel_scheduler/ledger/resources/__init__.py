"""Carrel's objects as custom resources of a Kubernetes cluster."""
