"""What a workspace finds around itself: its Python environment and its folders, checked for form.

Whether they exist and its user may read them shows at the place where it runs: the environment in
``python_environment``, before anything else begins, the folders when the engine mounts them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from typing_extensions import override

from carrel.models import Volume, Workload
from carrel_spawner.bad_option import BadOption

ENVIRONMENT: Final = "CARREL_ENVIRONMENT"
"""Variable of a workspace: the prefix of the Python environment that its notebooks run in."""
FOLDERS: Final = "CARREL_FOLDERS"
"""Variable of a workspace: its folders that are seen in the home, JSON of ``[source, name]``."""
MOST_FOLDERS: Final = 64
_LONGEST: Final = 4096
_SPELLING: Final = "SOURCE[:DESTINATION][:ro]"
_FOLDER: Final = f"{_SPELLING}: an absolute path, and a name below the home to see it at"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is seen at ``destination`` below the home."""

    source: str
    destination: str
    read_only: bool = False

    @override
    def __str__(self) -> str:
        return f"{self.source}:{self.destination}{':ro' if self.read_only else ''}"

    def as_dict(self) -> dict[str, Any]:
        """As the scheduler and the Hub are told."""
        return asdict(self)


def environment(value: object) -> str:
    """The prefix of a Python environment; empty: the kind's own. Raises ``BadOption``."""
    if value in ("", None):
        return ""
    right = "the folder of a Python environment, as /opt/torch or ~/venv"
    if not isinstance(value, str) or _unfit(value) or not value.startswith(("/", "~/")):
        raise BadOption("environment", value, right)
    return value.rstrip("/")


def folders(value: object) -> tuple[Folder, ...]:
    """Folders as a list of spellings or of objects, or as lines. Raises ``BadOption``."""
    if isinstance(value, str):
        value = [line.strip() for line in value.splitlines() if line.strip()]
    if value is None:
        return ()
    if not isinstance(value, Sequence) or len(value) > MOST_FOLDERS:
        raise BadOption("volumes", value, f"a list of at most {MOST_FOLDERS} folders")
    found = tuple(_folder(one) for one in value)
    modes: dict[str, bool] = {}
    for number, one in enumerate(found):
        if one.destination in {other.destination for other in found[:number]}:
            raise BadOption("volumes", str(one), f"the only one at {one.destination}")
        if modes.setdefault(one.source, one.read_only) != one.read_only:
            raise BadOption("volumes", str(one), f"as {one.source} before it: only to read, or not")
    return found


def from_workload(workload: Workload) -> tuple[str, tuple[Folder, ...]]:
    """The environment and the folders that a workload of the queue was asked for with."""
    return workload.spec.environment.get(ENVIRONMENT, ""), of_volumes(workload.spec.volumes)


def of_volumes(volumes: Iterable[Volume]) -> tuple[Folder, ...]:
    """Folders as the scheduler tells them."""
    return tuple(Folder(one.source, one.destination, one.read_only) for one in volumes)


def variables(prefix: str, seen: Sequence[Folder]) -> dict[str, str]:
    """What the workspace's own start has to know."""
    links = json.dumps([[one.source, one.destination] for one in seen]) if seen else ""
    told = {ENVIRONMENT: prefix, FOLDERS: links}
    return {name: text for name, text in told.items() if text}


def _folder(value: object) -> Folder:
    if isinstance(value, str):
        source, _, behind = value.partition(":")
        destination, _, mode = behind.partition(":")
        if not mode and destination in ("ro", "rw"):
            destination, mode = "", destination
        if mode not in ("", "ro", "rw"):
            raise BadOption("volumes", value, _FOLDER)
        return _checked(value, source, destination, read_only=mode == "ro")
    if not isinstance(value, Mapping) or not {"source"} <= set(value) <= {
        *("source", "destination", "read_only")
    }:
        raise BadOption("volumes", value, f"{_SPELLING}, or source, destination and read_only")
    read_only = value.get("read_only", False)
    if not isinstance(read_only, bool):
        raise BadOption("volumes.read_only", read_only, "true or false")
    return _checked(value, value["source"], value.get("destination", ""), read_only=read_only)


def _checked(value: object, source: object, destination: object, *, read_only: bool) -> Folder:
    if not isinstance(source, str) or not isinstance(destination, str):
        raise BadOption("volumes", value, _FOLDER)
    path = PurePosixPath(source)
    where = PurePosixPath(path.name if destination in ("", source) else destination)
    astray = where.is_absolute() or ".." in where.parts or not where.parts
    if not path.is_absolute() or ".." in path.parts or not path.name or astray:
        raise BadOption("volumes", value, _FOLDER)
    if _unfit(source) or _unfit(destination):
        raise BadOption("volumes", value, f"without colons and line ends, as {_SPELLING}")
    return Folder(str(path), str(where), read_only)


def _unfit(path: str) -> bool:
    return len(path) > _LONGEST or any(char in path for char in ":\0\n\r")
