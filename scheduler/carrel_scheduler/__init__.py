"""The shared GPU scheduler: what a team's machines do next, and why.

Layers, from the top: ``service`` wires; ``api`` is the REST edge; ``policy`` and ``workloads``
turn what users ask for into tasks; ``engines`` run them (``node`` knows the devices); ``ledger``
keeps what must last; ``core`` decides and imports nothing of ours.
"""

__version__ = "0.1.0"
