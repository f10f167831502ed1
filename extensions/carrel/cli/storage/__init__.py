"""Commands about what work leaves: files, checkpoints, models."""
