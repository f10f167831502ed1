"""``%load_ext carrel``: send cells away and look after them from a notebook.

``%%train``, ``%%sweep`` and ``%%serve`` send the cell; ``%run_as_job`` a notebook; ``%jobs``,
``%quota``, ``%gpus``, ``%logs`` and ``%tensorboard`` look; ``%cancel``, ``%suspend`` and
``%resume`` steer. Errors are one line. Nothing is connected before it is needed.
"""

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython."""
    for made in _classes():
        shell.register_magics(made)


def unload_ipython_extension(shell: Any) -> None:
    """Called by IPython: the magics are gone, work and views go on."""
    manager = shell.magics_manager
    for made in _classes():
        manager.registry.pop(made.__name__, None)
        for kind, names in made.magics.items():
            for name in names:
                manager.magics[kind].pop(name, None)


def _classes() -> tuple[Any, ...]:
    from carrel.magics.cells import CellMagics
    from carrel.magics.lines import LineMagics
    from carrel.magics.notebooks import NotebookMagics

    return CellMagics, LineMagics, NotebookMagics
