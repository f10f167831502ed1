"""The engine of a cluster: tasks are pods of their project's namespace."""
