"""Provisioning requests to the cluster's autoscaler, for nodes on which waiting work fits."""
