"""The front: Traefik, the one program that strangers reach.

``static`` is what Traefik is started with, ``rules`` is how one route of the Hub is written for it,
``routes`` is the Hub's proxy class, which keeps all routes in one file, and ``provided`` hands that
file to a Traefik on another machine. Traefik and the Hub may each restart while the other goes on.
"""
