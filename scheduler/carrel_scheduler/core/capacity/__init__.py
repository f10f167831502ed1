"""Where work may run, and how many tasks of each class fit there."""
