"""Live views in notebooks: one training, all trainings, the quota line.

Plain JavaScript and CSS, no build step. A view is fed from the client's background loop, so it
moves while a cell computes; it sends nothing while nothing changes, and stops when nobody looks.
Buttons speak to the workspace's server, not to the kernel, so they work while the kernel is busy.
"""
