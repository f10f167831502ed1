"""The program of a workspace's server: JupyterHub's, which starts sooner without what nobody uses.

``python -m carrel.workspace.server [arguments]``, in place of ``python -m jupyterhub.singleuser``.
JupyterLab asks yarn for its settings when it is imported, where Node.js is installed: up to a
second for the address of a registry, from which builds would take packages. A workspace makes none.
When it is told to stop, it ends as soon as everything is saved.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from carrel.workspace.worker_threads import end_idle_threads
from carrel_process.late_imports import put_off_iri_checks


def main() -> None:
    """Run the server; returns when it has ended."""
    prepare()
    from jupyterhub.singleuser import main as serve

    run(serve)


def run(serve: Callable[[], Any]) -> None:
    """Run a Jupyter server; once it has stopped, nothing keeps the process from ending."""
    try:
        serve()
    finally:
        end_idle_threads()


def prepare() -> None:
    """Spare the imports that follow what is not needed; called before JupyterLab is imported."""
    put_off_iri_checks()
    if find_spec("jupyterlab") is not None:
        commands: Any = import_module("jupyterlab.commands")
        commands._yarn_config = _yarn_settings  # noqa: SLF001 - there is no setting for it


def _yarn_settings(*_: Any) -> dict[str, dict[str, str]]:
    """Settings of JupyterLab for machines without Node.js."""
    return {"yarn config": {}, "npm config": {}}


if __name__ == "__main__":
    main()
