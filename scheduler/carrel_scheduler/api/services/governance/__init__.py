"""The services behind ``operations.governance``."""
