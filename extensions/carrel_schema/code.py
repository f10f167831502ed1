"""The working folder that travels with a job, as clients, the scheduler and tasks know it.

A folder is a list of files, each a list of chunks; chunks are named by the SHA-256 of their
content, and the folder by that of its list. What is known by its digest need not be sent again.
"""

import hashlib
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

CHUNK_BYTES: Final = 2**20
MOST_FOLDER_BYTES: Final = 512 * 2**20
MOST_FILES: Final = 20_000
LONGEST_PATH: Final = 1024
MOST_LIST_BYTES: Final = 16 * 2**20

Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class CodeFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file: its path in the folder, its size in bytes and its chunks in their order."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_PATH)]
    size: Annotated[int, msgspec.Meta(ge=0, le=MOST_FOLDER_BYTES)]
    executable: bool = False
    chunks: tuple[Digest, ...] = ()


class CodeFolder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files of a folder, by path."""

    files: Annotated[tuple[CodeFile, ...], msgspec.Meta(max_length=MOST_FILES)]

    def encode(self) -> bytes:
        """The bytes that the folder's digest is made of."""
        return msgspec.json.encode(self)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def chunks(self) -> list[str]:
        """The chunks, each once, in the order of the files."""
        return list(dict.fromkeys(chunk for file in self.files for chunk in file.chunks))


class UnusableFolder(ValueError):  # noqa: N818 - what it is
    """A list of files that no folder can be made of.

    Attributes:
        field: of the list that is wrong; ``value`` stands there, ``expected`` is right.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field}={value!r}: {expected}")
        self.field, self.value, self.expected = field, value, expected


def decode(content: bytes) -> CodeFolder:
    """Read and check a list of files. Raises ``UnusableFolder``."""
    try:
        folder = msgspec.json.decode(content, type=CodeFolder)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnusableFolder("body", "", f"a list of files in JSON ({error})") from error
    if folder.size > MOST_FOLDER_BYTES:
        most = MOST_FOLDER_BYTES // 2**20
        raise UnusableFolder("files", folder.size, f"at most {most} MiB in all")
    for number, (field, value, expected) in enumerate(_wrong(folder)):
        if number == 0:
            raise UnusableFolder(field, value, expected)
    return folder


def _wrong(folder: CodeFolder) -> Iterator[tuple[str, object, str]]:
    seen: set[str] = set()
    folders: set[str] = set()
    for number, file in enumerate(folder.files):
        field = f"files[{number}]"
        parts = file.path.split("/")
        if any(part in ("", ".", "..") for part in parts) or not file.path.isprintable():
            yield f"{field}.path", file.path, "a path below the folder, without `..`"
        if file.path in seen:
            yield f"{field}.path", file.path, "each path once"
        if len(file.chunks) != -(-file.size // CHUNK_BYTES):
            yield f"{field}.chunks", len(file.chunks), f"one for every {CHUNK_BYTES} bytes"
        seen.add(file.path)
        folders |= {"/".join(parts[:end]) for end in range(1, len(parts))}
    for path in sorted(seen & folders):
        yield "files", path, "either a file or a folder of that path"


def is_digest(text: str) -> bool:
    """Whether a text can be the name of some content."""
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def digest_of(content: bytes) -> str:
    """The name of some content."""
    return hashlib.sha256(content).hexdigest()
