"""A folder of checkpoints, each complete or absent, and the formats of values.

A checkpoint is a folder ``step-<step>.<n>`` with its files and a manifest of their sizes and sums.
It is written under another name, synced to the disk, and then renamed: a crash at any instant
leaves the former ones. On reading, sums are compared; a damaged checkpoint is passed over.

A value is written by pickle, as NumPy's npz, or by a function of the user's. NumPy is used only
where the program itself already imported it.
"""

import contextlib
import functools
import json
import os
import pickle
import re
import shutil
import sys
import tempfile
import time
import types
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PICKLE: Final = "pickle"
ARRAY: Final = "array"
ARRAYS: Final = "arrays"
WRITTEN: Final = "written"
FUNCTIONS: Final = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
)
NAMES: Final = {PICKLE: "data.pkl", ARRAY: "data.npz", ARRAYS: "data.npz", WRITTEN: "data"}


def kind_of(value: Any) -> str:
    """The format for a value. Models are often callable, so only functions count as functions."""
    if isinstance(value, FUNCTIONS):
        return WRITTEN
    if _is_array(value):
        return ARRAY
    if isinstance(value, dict) and value and all(map(_is_array, value.values())):
        names = (isinstance(name, str) and name.isidentifier() for name in value)
        return ARRAYS if all(names) else PICKLE
    return PICKLE


def _is_array(value: Any) -> bool:
    # While another thread imports it, NumPy is there without its names: then nobody has an array.
    array = getattr(sys.modules.get("numpy"), "ndarray", None)
    return array is not None and type(value) is array and not value.dtype.hasobject


def write(value: Any, kind: str, folder: Path) -> None:
    """Write a value below the folder."""
    path = folder / NAMES[kind]
    if kind == WRITTEN:
        writer: Callable[[Path], object] = value
        writer(path)
        if not any(folder.iterdir()):
            raise ValueError(f"the function given to save() wrote nothing to {path.name}")
        return
    if kind == PICKLE:
        with path.open("wb") as out:
            pickle.dump(value, out, protocol=pickle.HIGHEST_PROTOCOL)
        return
    import numpy as np

    np.savez(path, **({"array": value} if kind == ARRAY else value))


def read(kind: str, folder: Path) -> Any:
    """The value again; for what a function wrote, its path."""
    path = folder / NAMES[kind]
    if kind == PICKLE:
        with path.open("rb") as file:
            return pickle.load(file)  # noqa: S301 - the job's own file, checked against its sums
    if kind in (ARRAY, ARRAYS):
        import numpy as np

        with np.load(path, allow_pickle=False) as arrays:
            return arrays["array"] if kind == ARRAY else dict(arrays)
    return path if path.exists() else next(p for p in folder.iterdir() if p.name != "manifest.json")


MANIFEST: Final = "manifest.json"
NAME: Final = re.compile(r"step-(\d+)\.(\d+)")
UNFINISHED: Final = ".unfinished-"
CHUNK: Final = 1 << 20


class Damaged(Exception):  # noqa: N818 - reads as the fact it states
    """A checkpoint is not what was written; says in which way."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint on disk; ``at`` in epoch seconds."""

    step: int
    path: Path
    at: float


class CheckpointStore:
    """The checkpoints below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, value: Any, step: int | None, keep: int) -> Saved:
        """Write one and remove all but the last ``keep``. Raises ``ValueError``, ``OSError``."""
        if keep < 1:
            raise ValueError(f"keep is {keep}, but at least 1 checkpoint has to stay")
        if step is not None and step < 0:
            raise ValueError(f"step is {step}, but steps count from 0")
        self.folder.mkdir(parents=True, exist_ok=True)
        present = self.names()
        number = present[-1][0] + 1 if step is None and present else int(step or 0)
        turn = sum(1 for known, _, _ in present if known == number)
        at = time.time()
        unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=self.folder))
        try:
            _fill(unfinished, value, number, at)
            final = self._publish(unfinished, number, turn)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        for _, _, old in self.names()[:-keep]:
            shutil.rmtree(old, ignore_errors=True)
        return Saved(number, final, at)

    def names(self) -> list[tuple[int, int, Path]]:
        """Step, turn and folder of each, oldest first."""
        if not self.folder.is_dir():
            return []
        found = ((NAME.fullmatch(entry.name), entry) for entry in self.folder.iterdir())
        return sorted((int(m[1]), int(m[2]), entry) for m, entry in found if m is not None)

    def load(self, folder: Path) -> Any:
        """The value of a checkpoint. Raises ``Damaged``."""
        manifest = checked(folder)
        try:
            return read(manifest["format"], folder)
        except Exception as error:
            raise Damaged(f"its content cannot be read: {error}") from error

    def clean(self) -> None:
        """Remove unfinished checkpoints of runs that were killed."""
        if self.folder.is_dir():
            for entry in self.folder.glob(f"{UNFINISHED}*"):
                shutil.rmtree(entry, ignore_errors=True)

    def _publish(self, unfinished: Path, number: int, turn: int) -> Path:
        while True:
            final = self.folder / f"step-{number:012d}.{turn}"
            try:
                unfinished.rename(final)
            except OSError:
                if not final.exists():
                    raise
                turn += 1  # another thread saved the same step meanwhile
                continue
            _sync(self.folder)
            return final


def _fill(folder: Path, value: Any, step: int, at: float) -> None:
    kind = kind_of(value)
    write(value, kind, folder)
    files = {str(path.relative_to(folder)): list(_sum(path)) for path in _files(folder)}
    manifest = {"format": kind, "step": step, "at": at, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    for path in _files(folder):
        _sync(path)
    for path in [*(path for path in folder.rglob("*") if path.is_dir()), folder]:
        _sync(path)


def checked(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose files are as written. Raises ``Damaged``."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        expected = {name: tuple(facts) for name, facts in manifest["files"].items()}
        for name, facts in expected.items():
            if _sum(folder / name) != facts:
                raise Damaged(f"{name} is not as it was written")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(str(error)) from error
    return manifest


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _sum(path: Path) -> tuple[int, int]:
    """Size and CRC-32."""
    value = 0
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            value = zlib.crc32(piece, value)
        return file.tell(), value


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        with contextlib.suppress(OSError):  # the data is on disk already
            os.close(descriptor)
