"""The protocol of the Kubernetes API, independent of Carrel."""
