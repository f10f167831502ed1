"""``%load_ext carrel``: send cells away and look after them from a notebook.

``%%train``, ``%%sweep`` and ``%%serve`` send the cell; ``%run_as_job`` a notebook; ``%jobs``,
``%quota``, ``%gpus``, ``%logs`` and ``%tensorboard`` look; ``%cancel``, ``%suspend`` and
``%resume`` steer. Errors are one line. Nothing is connected before it is needed.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

ALONE: Final = re.compile(r"%%(train|sweep|serve|gpu)\b.*")


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython."""
    for made in _classes():
        shell.register_magics(made)
    if show_help not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(show_help)


def unload_ipython_extension(shell: Any) -> None:
    """Called by IPython: the magics are gone, work and views go on."""
    if show_help in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(show_help)
    manager = shell.magics_manager
    for made in _classes():
        manager.registry.pop(made.__name__, None)
        for kind, names in made.magics.items():
            for name in names:
                manager.magics[kind].pop(name, None)


def show_help(lines: Sequence[str]) -> list[str]:
    """A cell of one line, as ``%%train -h``: IPython runs no magic of a cell that is empty."""
    written = [line for line in lines if line.strip()]
    if len(written) == 1 and ALONE.fullmatch(written[0].rstrip("\n")):
        return [written[0][1:]]
    return list(lines)


def _classes() -> tuple[Any, ...]:
    from carrel.magics.cells import CellMagics
    from carrel.magics.gpu import GpuMagics
    from carrel.magics.lines import LineMagics
    from carrel.magics.notebooks import NotebookMagics

    return CellMagics, GpuMagics, LineMagics, NotebookMagics
