"""Classes of equal requests, and which GPUs of a node a task of a class gets."""
