"""Metrics for Prometheus: what is counted, the gauges of now, and other names for them."""
