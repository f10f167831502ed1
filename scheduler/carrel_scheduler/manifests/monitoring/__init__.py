"""Monitoring by Prometheus and Grafana: rules of alerts and boards, described in Python."""
