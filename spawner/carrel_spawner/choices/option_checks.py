"""The check of every choice for a workspace.

The same check serves the start form, the Hub's API (which bypasses the form) and the queue, so
that nothing unchecked reaches the scheduler. Whether the sizes can ever be met is the scheduler's
answer. Sizes may also come in the units of the scheduler's API, as its call on our turn has them.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from carrel_spawner.options import (
    BYTES_PER_GIB,
    SIZES,
    BadOption,
    ChosenAssets,
    Folder,
    WorkspaceChoice,
    WorkspaceChoices,
    WorkspaceProfile,
)

MOST_FOLDERS: Final = 64
_LONGEST: Final = 4096
_SPELLING: Final = "SOURCE[:DESTINATION][:ro]"
_FOLDER: Final = f"{_SPELLING}: an absolute path, and a name below the home to see it at"
FIELDS: Final = (
    "project",
    "gpus",
    "cpu",
    "memory_gib",
    "gpu_memory_gib",
    "profile",
    "environment",
    "volumes",
    "environment_asset",
    "compute",
    "data",
    "claim",
)
MOST_DATA: Final = 32
API_FIELDS: Final = ("cpu_millicores", "memory_bytes", "gpu_memory_bytes")
HUNDREDTHS: Final = 100
MOST_GPU_GIB: Final = 1024.0


def from_form(fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Form fields as options; fields that are not ours (``_xsrf``, ``action``) are left out."""
    # The last of several counts, but for data; folders are the lines of one field.
    found: dict[str, Any] = {
        name: values[-1].strip()
        for name, values in fields.items()
        if name in FIELDS and values and values[-1].strip()
    }
    if "data" in found:
        found["data"] = [one.strip() for one in fields["data"] if one.strip()]
    if "compute" in found:  # the fields of sizes have to hold something
        found = {name: value for name, value in found.items() if name not in SIZES}
    return found


def check(
    options: Mapping[str, Any], projects: Sequence[str], offer: WorkspaceChoices
) -> WorkspaceChoice:
    """Check options against what the user may choose. Raises ``BadOption``."""
    for name in options:
        if name not in FIELDS + API_FIELDS:
            raise BadOption(name, options[name], f"left out (known are {', '.join(FIELDS)})")
    claim = options.get("claim", "")
    if not isinstance(claim, str):
        raise BadOption("claim", claim, "the name of a queued workspace")
    options = _in_our_units(options)
    assets = _assets(options, offer)
    usual, most = offer.defaults, offer.most
    shared = _number("gpu_memory_gib", options.get("gpu_memory_gib") or 0, 0, MOST_GPU_GIB)
    gpus, cpu, memory = (
        options.get(name, getattr(usual, name)) for name in ("gpus", "cpu", "memory_gib")
    )
    if shared:
        gpus = options.get("gpus") or 0
    return WorkspaceChoice(
        project=_project(options.get("project", ""), projects),
        gpus=_gpus(gpus, most.gpus, shared=bool(shared)),
        cpu=_number("cpu", cpu, 0.1, most.cpu),
        memory_gib=_number("memory_gib", memory, 0.25, most.memory_gib),
        gpu_memory_gib=shared,
        claim=claim,
        profile=_profile(options.get("profile", ""), offer.profiles),
        environment=parse_environment(options.get("environment", "")),
        volumes=_volumes(options.get("volumes"), offer),
        assets=assets,
        said=frozenset(SIZES).intersection(options) if assets.compute else frozenset(),
    )


def _assets(options: Mapping[str, Any], offer: WorkspaceChoices) -> ChosenAssets:
    """The names of assets; whether there are such for the user is the scheduler's answer."""
    for field in ("environment_asset", "compute"):
        if not isinstance(options.get(field) or "", str):
            raise BadOption(field, options[field], "the name of an asset")
    data = options.get("data") or []
    if isinstance(data, str):
        data = data.replace(",", " ").split()
    names = isinstance(data, Sequence) and all(isinstance(one, str) and one for one in data)
    if not names or len(data) > MOST_DATA:
        raise BadOption("data", data, f"a list of at most {MOST_DATA} names of data sources")
    if data and not offer.folders:
        raise BadOption("data", list(data), "left out: the admin sets the volumes of workspaces")
    return ChosenAssets(
        options.get("environment_asset") or "",
        options.get("compute") or "",
        tuple(dict.fromkeys(data)),
    )


def _volumes(value: object, offer: WorkspaceChoices) -> tuple[Folder, ...]:
    found = parse_folders(value)
    if found and not offer.folders:
        raise BadOption("volumes", [str(one) for one in found], "left out: the admin sets them")
    return found


def _profile(value: object, profiles: Sequence[WorkspaceProfile]) -> str:
    known = [one.slug for one in profiles]
    if not value:
        return known[0] if known else ""
    if value not in known:
        right = f"one of {', '.join(known)}" if known else "left out: there is one kind only"
        raise BadOption("profile", value, right)
    return str(value)


def _in_our_units(options: Mapping[str, Any]) -> dict[str, Any]:
    """Millicores and bytes as cores and GiB."""
    ours = dict(options)
    for theirs, field, unit in (
        ("cpu_millicores", "cpu", 1000),
        ("memory_bytes", "memory_gib", BYTES_PER_GIB),
        ("gpu_memory_bytes", "gpu_memory_gib", BYTES_PER_GIB),
    ):
        if theirs in ours:
            ours[field] = _number(theirs, ours.pop(theirs), 0, 1024**6) / unit
    return ours


def _project(value: object, projects: Sequence[str]) -> str:
    if not projects:
        raise BadOption("project", value, "one of yours, but you are not in any: ask an admin")
    if value in ("", None):
        return projects[0]
    if not isinstance(value, str) or value not in projects:
        raise BadOption("project", value, f"one of your projects ({', '.join(projects)})")
    return value


def _gpus(value: object, most: int, *, shared: bool) -> float:
    """Whole GPUs, or a share of one in hundredths; ``shared``: memory of one is asked for."""
    expected = f"a whole number from 0 to {most}, or a share of one GPU such as 0.5"
    try:
        number = _number("gpus", value, 0, max(most, 0))
    except BadOption:
        raise BadOption("gpus", value, expected) from None
    part = round(number * HUNDREDTHS)
    if number != int(number) and (number > 1 or abs(number * HUNDREDTHS - part) > 1e-6 or not part):
        raise BadOption("gpus", value, expected)
    if shared and number:
        raise BadOption("gpus", value, "left out where memory of a GPU is asked for")
    return number


def _number(field: str, value: object, least: float, most: float) -> float:
    expected = f"a number from {least:g} to {most:g}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadOption(field, value, expected)
    try:
        number = float(value)
    except ValueError:
        raise BadOption(field, value, expected) from None
    if not least <= number <= most:
        raise BadOption(field, value, expected)
    return number


def parse_environment(value: object) -> str:
    """The prefix of a Python environment; empty: the kind's own. Raises ``BadOption``."""
    if value in ("", None):
        return ""
    right = "the folder of a Python environment, as /opt/torch or ~/venv"
    if not isinstance(value, str) or _unfit(value) or not value.startswith(("/", "~/")):
        raise BadOption("environment", value, right)
    return value.rstrip("/")


def parse_folders(value: object) -> tuple[Folder, ...]:
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
