"""The client's part for what administrators configure and look at."""
