"""Files of work: in its running tasks, and those that are kept after their end."""
