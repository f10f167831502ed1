"""What leaves a JupyterLab running: one serves all tests of this folder."""
