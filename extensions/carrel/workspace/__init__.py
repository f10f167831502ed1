"""The side of Carrel that runs inside a workspace's Jupyter server.

A wheel enables it by the files it installs below ``etc/jupyter`` and ``share/jupyter``. Whoever
starts a server does not need to rely on these: ``server_arguments`` and ``environment`` say
everything on the command line and in the environment, and the same thing said twice does no harm.
"""

from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent
LABEXTENSIONS = PACKAGE / "lab" / "labextensions"
KERNEL_STARTUP = PACKAGE / "notebook" / "startup.py"


def server_arguments() -> list[str]:
    """What a workspace's Jupyter server is started with, besides its own arguments."""
    return [
        "--ServerApp.jpserver_extensions=carrel.workspace=True",
        f"--LabApp.extra_labextensions_path={LABEXTENSIONS}",
    ]


def environment() -> dict[str, str]:
    """What a workspace's environment needs, so that its Python kernels load ``%load_ext carrel``.

    A kernel of an environment without this package starts as usual.
    """
    return {"PYTHONSTARTUP": str(KERNEL_STARTUP)}


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from carrel.workspace.extension import CarrelWorkspace

    return [{"module": "carrel.workspace", "app": CarrelWorkspace}]
