"""Requests to the cluster's autoscaler for nodes that waiting work fits on."""
