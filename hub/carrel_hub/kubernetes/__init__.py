"""JupyterHub with Carrel on a cluster: each part a deployment, told by one file and one secret.

``settings`` is the file, ``config`` fills the Hub's configuration from it, and ``part``
becomes one of the other processes (``python -m carrel_hub.kubernetes.part proxy``).
"""
