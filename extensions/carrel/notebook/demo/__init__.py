"""The demo: ``carrel-demo.ipynb``, put into new workspaces, and the training it talks about.

The notebook stands alone; what it imports from here is installed wherever ``carrel`` is.
"""
