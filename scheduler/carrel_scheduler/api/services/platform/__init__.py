"""The services behind ``operations.platform``."""
