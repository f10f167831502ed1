"""Building ``images/`` without Docker and without a registry, into the user's cache.

``base`` makes a Debian with Python from the distribution's packages, ``context`` gathers what a
build may see and names it by its content, ``pip_settings`` tells the build how this machine reaches
packages, ``builder`` runs buildah. What is there under the same name is not built again.
"""
