"""Carrel from a notebook, a shell or a job.

    from carrel import Client          # talk to the scheduler
    import carrel
    carrel.report(step=1, loss=0.3)    # inside a job: say how it is going
    carrel.checkpoint.save(model, step=1)

Nothing heavy is imported until it is used: inside a job this package costs next to nothing.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from carrel import distribution

if TYPE_CHECKING:
    from carrel import checkpoint, progress
    from carrel.client import AsyncClient, Client
    from carrel.client.submit import as_completed, map, wait  # noqa: A004 - read as carrel.map
    from carrel.job.artifacts import save
    from carrel.job.report import report
    from carrel.job.trial import trial
    from carrel.magics import load_ipython_extension, unload_ipython_extension
    from carrel.notebook.comparison import compare
    from carrel.notebook.job import submit
    from carrel.serving import BadInput, serve
    from carrel.study import optuna_storage

__version__ = "0.1.0"

if _folder := distribution.find_other():
    warnings.warn(
        f"The distribution {distribution.OTHER!r} in {_folder} is another project with a module of "
        f"the same name as this one's: {distribution.REMEDY}.",
        stacklevel=2,
    )

_HOME = {
    "AsyncClient": "carrel.client",
    "BadInput": "carrel.serving",
    "Client": "carrel.client",
    "as_completed": "carrel.client.submit",
    "compare": "carrel.notebook.comparison",
    "map": "carrel.client.submit",
    "submit": "carrel.notebook.job",
    "wait": "carrel.client.submit",
    "report": "carrel.job.report",
    "save": "carrel.job.artifacts",
    "serve": "carrel.serving",
    "trial": "carrel.job.trial",
    "optuna_storage": "carrel.study",
    "load_ipython_extension": "carrel.magics",
    "unload_ipython_extension": "carrel.magics",
}
_MODULES = ("checkpoint", "progress")

__all__ = [
    "AsyncClient",
    "BadInput",
    "Client",
    "as_completed",
    "checkpoint",
    "compare",
    "load_ipython_extension",
    "map",
    "optuna_storage",
    "progress",
    "report",
    "save",
    "serve",
    "submit",
    "trial",
    "unload_ipython_extension",
    "wait",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"carrel.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
