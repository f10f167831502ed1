"""Notifications of watches: by this process's commits, those of others, and the database."""
