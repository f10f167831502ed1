"""The shell tool ``carrel``."""
