"""Notebooks against one running product: the tutorial, and cells that run on a GPU elsewhere."""
