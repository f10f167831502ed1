"""The messages of reasons, in plain words, the same on every surface."""
