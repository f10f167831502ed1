"""The front: Traefik, the only part that is reachable from outside.

``traefik`` is what it is started with, ``rules`` is how routes of the Hub and hosts are written for
it, ``origins`` names the host of each route of work, ``routes`` is the Hub's proxy class, which
keeps all routes in one file and writes it in groups (``group_writes``), and ``provided`` hands that
file to a Traefik on another machine. Traefik and the Hub may each restart while the other goes on.
"""
