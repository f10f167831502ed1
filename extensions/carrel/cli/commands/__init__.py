"""The commands of ``carrel``, one module for each resource."""
