"""What the operations on the platform as a whole do."""
