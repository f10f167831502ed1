"""The protocol of the Kubernetes API; knows nothing of Carrel."""
