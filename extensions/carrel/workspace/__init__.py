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
AUTH_CACHE_SECONDS = 5
"""Seconds for which a workspace admits somebody whose session the Hub has ended since."""


def server_arguments() -> list[str]:
    """The arguments of a workspace's Jupyter server, besides its own."""
    return [
        "--ServerApp.jpserver_extensions=carrel.workspace=True",
        # Its handlers come guarded with ours.
        "--ServerApp.jpserver_extensions=jupyter_server_proxy=False",
        f"--LabApp.extra_labextensions_path={LABEXTENSIONS}",
        f"--HubOAuth.cache_max_age={AUTH_CACHE_SECONDS}",
        # Ports of kernels could be reached by every account of the machine.
        "--KernelManager.transport=ipc",
    ]


def environment() -> dict[str, str]:
    """The variables of a workspace by which its Python kernels load ``%load_ext carrel``.

    A kernel of an environment without this package starts as usual.
    """
    return {"PYTHONSTARTUP": str(KERNEL_STARTUP)}


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from carrel.workspace.extension import CarrelWorkspace

    return [{"module": "carrel.workspace", "app": CarrelWorkspace}]
