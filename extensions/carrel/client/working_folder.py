"""The folder that a job's command works in: which files go along, and their chunks.

``.gitignore`` and ``.carrelignore`` (same syntax, read after it) say what stays here; so do
version control and caches. A link to a file inside the folder is sent as that file, other links
stay here. Files are read when they are listed and again when they are sent, so that a folder of any
allowed size takes little memory.
"""

import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from carrel.errors import BadSetting
from carrel_schema.code import (
    CHUNK_BYTES,
    LONGEST_PATH,
    MOST_FILES,
    MOST_FOLDER_BYTES,
    CodeFile,
    CodeFolder,
    digest_of,
)

IGNORE_FILES: Final = (".gitignore", ".carrelignore")
NEVER_SENT_LINES: Final = (
    ".git",
    ".hg",
    ".svn",
    "__pycache__/",
    "*.pyc",
    ".ipynb_checkpoints/",
    ".venv/",
    "node_modules/",
)
NEVER_SENT: Final = GitIgnoreSpec.from_lines(NEVER_SENT_LINES)
_MODULE: Final = "-m"


@dataclass(frozen=True)
class LocalFolder:
    """A folder to upload.

    Attributes:
        root: of the folder here.
        listed: its files with their chunks.
        left_out: links that stay here, since they lead out of the folder.
    """

    root: Path
    listed: CodeFolder
    left_out: Sequence[str]

    def read_chunk(self, digest: str) -> bytes:
        """The content of a chunk. Raises ``BadSetting`` when its file has changed meanwhile."""
        path, number = self._places[digest]
        content = _read(self.root / path, number)
        if digest_of(content) != digest:
            raise BadSetting(f"{path} was changed while it was sent; submit again.")
        return content

    @cached_property
    def _places(self) -> dict[str, tuple[str, int]]:
        """The place of each chunk: the file, and its number in it."""
        return {
            chunk: (file.path, number)
            for file in self.listed.files
            for number, chunk in enumerate(file.chunks)
        }

    @property
    def told(self) -> str:
        """The size of the folder for a person: ``14 files (3.2 MiB) of /home/ada/project``."""
        count, mib = len(self.listed.files), self.listed.size / 2**20
        files = "1 file" if count == 1 else f"{count:,} files"
        rest = f"; links out of it stay here: {', '.join(self.left_out)}" if self.left_out else ""
        return f"{files} ({mib:.1f} MiB) of {self.root}{rest}"


def pack(root: Path) -> LocalFolder:
    """List the files of a folder.

    Raises:
        BadSetting: naming the folder or file, when it cannot be read or there is too much of it.
    """
    if not root.is_dir():
        raise BadSetting(f"There is no folder {root} to send.")
    files: list[CodeFile] = []
    left_out: list[str] = []
    size = 0
    for path in _files(root.resolve(), left_out):
        name = path.relative_to(root.resolve()).as_posix()
        try:
            file = _listed(path, name)
        except OSError as error:
            raise BadSetting(f"{path} cannot be read: {error.strerror}; {_STAYS}") from error
        size += file.size
        if size > MOST_FOLDER_BYTES or len(files) == MOST_FILES:
            raise _too_much(root, size)
        files.append(file)
    return LocalFolder(root.resolve(), CodeFolder(files=tuple(files)), left_out)


def names_files(command: Sequence[str], root: Path) -> bool:
    """Whether a command names something in a folder: a file, or a module with ``-m``."""
    before = ""
    for word in (part for one in command for part in _parts(one)):
        name = word.removeprefix("./")
        if before == _MODULE and word:
            top = word.partition(".")[0]
            if (root / top).is_dir() or (root / f"{top}.py").is_file():
                return True
        elif _is_relative(name) and (root / name).exists():
            return True
        before = word
    return False


_STAYS: Final = "a line in .carrelignore makes a file stay here."


def _is_relative(name: str) -> bool:
    inside = not name.startswith(("/", "-")) and ".." not in name.split("/")
    return inside and 0 < len(name) <= LONGEST_PATH


def _parts(word: str) -> list[str]:
    """A word of a command, and the words in it if it is a line for a shell."""
    try:
        return [word, *shlex.split(word)] if " " in word else [word]
    except ValueError:
        return [word]


def _too_much(root: Path, size: int) -> BadSetting:
    if size > MOST_FOLDER_BYTES:
        most = f"{MOST_FOLDER_BYTES // 2**20} MiB"
    else:
        most = f"{MOST_FILES:,} files"
    return BadSetting(
        f"{root} has more than {most}: name large data in .carrelignore and put it on a volume, "
        "submit from a folder with the code alone, or send nothing with --no-code.",
        code="too_large",
    )


def _files(root: Path, left_out: list[str]) -> Iterator[Path]:
    """Files that go along, in the order of their paths."""
    specs: dict[str, list[tuple[str, GitIgnoreSpec]]] = {"": []}
    for above, folders, names in os.walk(root):
        inside = Path(above).relative_to(root).as_posix()
        inside = "" if inside == "." else inside
        known = [*specs.get(inside, []), *_ignored_in(Path(above), inside)]
        folders[:] = sorted(one for one in folders if _goes_along(_join(inside, one) + "/", known))
        for folder in list(folders):
            path = Path(above, folder)
            if path.is_symlink():
                folders.remove(folder)
                left_out.append(_join(inside, folder))
            specs[_join(inside, folder)] = known
        for name in sorted(names):
            path = Path(above, name)
            if not _goes_along(_join(inside, name), known):
                continue
            if path.is_symlink() and not _is_inside(path, root):
                left_out.append(_join(inside, name))
            elif path.is_file():
                yield path


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _ignored_in(folder: Path, inside: str) -> list[tuple[str, GitIgnoreSpec]]:
    lines: list[str] = []
    for name in IGNORE_FILES:
        file = folder / name
        if file.is_file():
            lines += file.read_text(encoding="utf-8", errors="replace").splitlines()
    return [(inside, ignore_spec(lines))] if lines else []


def ignore_spec(lines: Sequence[str]) -> GitIgnoreSpec:
    """The patterns of some lines; one that is none, such as ``[z-a]``, is passed over as by Git."""
    patterns = []
    for line in lines:
        try:
            patterns.append(GitIgnoreSpecPattern(line))
        except (ValueError, re.error):
            continue
    return GitIgnoreSpec(patterns)


def _goes_along(path: str, known: Sequence[tuple[str, GitIgnoreSpec]]) -> bool:
    """Whether no ignore file names it: the innermost one that says anything counts."""
    if NEVER_SENT.match_file(path):
        return False
    for inside, spec in reversed(known):
        ignored = spec.check_file(path.removeprefix(f"{inside}/") if inside else path).include
        if ignored is not None:
            return not ignored
    return True


def _is_inside(path: Path, root: Path) -> bool:
    return path.exists() and path.resolve().is_relative_to(root)


def _listed(path: Path, name: str) -> CodeFile:
    if not name.isprintable() or len(name) > LONGEST_PATH:
        raise BadSetting(f"{name!r} is no name that can be sent; {_STAYS}")
    chunks, size = [], 0
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        while piece := file.read(CHUNK_BYTES):
            chunks.append(digest_of(piece))
            size += len(piece)
    executable = bool(mode & stat.S_IXUSR)
    return CodeFile(path=name, size=size, executable=executable, chunks=tuple(chunks))


def _read(path: Path, number: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(number * CHUNK_BYTES)
            return file.read(CHUNK_BYTES)
    except OSError as error:
        raise BadSetting(f"{path} cannot be read: {error.strerror}.") from error
