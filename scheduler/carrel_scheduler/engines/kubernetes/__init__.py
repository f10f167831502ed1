"""Running tasks as pods of a Kubernetes cluster, and placing the pods of others there."""
