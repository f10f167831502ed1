"""Authentication of callers by the Hub, and their permissions."""
