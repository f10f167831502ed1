"""``%load_ext carrel``: send cells away and look after them from a notebook.

``%%train`` sends the cell; ``%jobs``, ``%quota``, ``%gpus`` and ``%logs`` look; ``%cancel``,
``%suspend`` and ``%resume`` steer. Errors are one line. Nothing is connected before it is needed.
"""

from typing import Any

PUBLIC = "CarrelMagics"


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython."""
    from carrel.magics.lines import CarrelMagics

    shell.register_magics(CarrelMagics)


def unload_ipython_extension(shell: Any) -> None:
    """Called by IPython: the magics are gone, trainings and views go on."""
    from carrel.magics.lines import MAGICS

    for kind, names in MAGICS.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
    shell.magics_manager.registry.pop(PUBLIC, None)
