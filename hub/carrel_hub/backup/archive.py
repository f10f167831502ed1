"""The archive of a backup: written and read whole, or not at all.

Its first member says what follows, with a checksum of each file: a damaged or foreign file is
refused before anything is touched. On its way in nothing is trusted: names have to be those of a
backup, members have to be plain files.
"""

import gzip
import hashlib
import io
import os
import sqlite3
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from carrel_hub.backup import encryption
from carrel_hub.backup.contents import DATABASES, MANIFEST, files_of, is_ours

FORMAT: Final = 1
_MOST_MANIFEST_BYTES: Final = 64 * 1024 * 1024


class BackupError(Exception):
    """A backup cannot be made or used; the message has the cause."""


class Manifest(msgspec.Struct, kw_only=True, frozen=True):
    """The description that a backup contains of itself.

    Attributes:
        made_at: epoch seconds.
        checksums: SHA-256 of each file by its name.
        elsewhere: what belongs to the installation and is not in the file.
    """

    format: int
    made_at: float
    checksums: dict[str, str]
    elsewhere: list[str] = []


def collect(state: Path, staging: Path, made_at: float, elsewhere: list[str]) -> Manifest:
    """Copy the files to back up into an empty folder. Raises ``BackupError``."""
    names = []
    for name in DATABASES:
        if (state / name).is_file():
            _snapshot(state / name, _made(staging / name))
            names.append(name)
    for name in files_of(state):
        try:
            content = (state / name).read_bytes()
        except FileNotFoundError:
            continue  # a result that was removed meanwhile
        except OSError as error:
            raise BackupError(f"{name} cannot be read: {error.strerror}") from error
        _made(staging / name).write_bytes(content)
        names.append(name)
    sums = {name: _checksum(staging / name) for name in names}
    return Manifest(format=FORMAT, made_at=made_at, checksums=sums, elsewhere=elsewhere)


def write(staging: Path, manifest: Manifest, target: Path, passphrase: str) -> None:
    """Write the archive of a folder, readable by its owner only. Raises ``BackupError``."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        _add(archive, MANIFEST, msgspec.json.encode(manifest), manifest.made_at)
        for name in manifest.checksums:
            _add(archive, name, (staging / name).read_bytes(), manifest.made_at)
    content = packed.getvalue()
    if passphrase:
        try:
            content = encryption.encrypt(content, passphrase)
        except OverflowError as error:
            raise BackupError("It is larger than 2 GiB: leave out --passphrase-file.") from error
    part = target.with_name(f".{target.name}.part")
    try:
        descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            os.link(part, target)  # unlike a rename it replaces nothing
        finally:
            part.unlink()
    except FileExistsError as error:
        raise BackupError(f"{error.filename2 or error.filename} exists already.") from error
    except OSError as error:
        raise BackupError(f"{target} cannot be written: {error.strerror}") from error


def read(source: Path, staging: Path, passphrase: str) -> Manifest:
    """Unpack a backup into an empty folder, checked. Raises ``BackupError``."""
    try:
        content = source.read_bytes()
    except OSError as error:
        raise BackupError(f"{source} cannot be read: {error.strerror}") from error
    if encryption.is_encrypted(content):
        content = _decrypted(content, passphrase)
    try:
        # Unpacked to its end, where the checksum of all of it is.
        plain = io.BytesIO(gzip.decompress(content))
        with tarfile.open(fileobj=plain, mode="r:") as archive:
            manifest = _manifest(archive)
            while (member := archive.next()) is not None:
                _unpack(archive, member, manifest.checksums, staging)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise BackupError(f"{source} is damaged, or no backup of Carrel: {error}") from error
    missing = [name for name in manifest.checksums if not (staging / name).is_file()]
    if missing:
        raise BackupError(f"{source} is damaged: {missing[0]} is missing.")
    for name in set(manifest.checksums) & set(DATABASES):
        _check_database(staging / name)
    return manifest


def _decrypted(content: bytes, passphrase: str) -> bytes:
    if not passphrase:
        raise BackupError("This backup is encrypted: name its passphrase with --passphrase-file.")
    try:
        return encryption.decrypt(content, passphrase)
    except encryption.WrongPassphrase as error:
        raise BackupError("The passphrase is wrong, or the file is damaged.") from error


def _manifest(archive: tarfile.TarFile) -> Manifest:
    first = archive.next()
    file = archive.extractfile(first) if first is not None else None
    if first is None or file is None or first.name != MANIFEST:
        raise BackupError(f"This is no backup of Carrel: it does not begin with {MANIFEST}.")
    if first.size > _MOST_MANIFEST_BYTES:
        raise BackupError(f"This is no backup of Carrel: {MANIFEST} is too large.")
    try:
        manifest = msgspec.json.decode(file.read(), type=Manifest)
    except msgspec.MsgspecError as error:
        raise BackupError(f"This is no backup of Carrel: {error}") from error
    if manifest.format != FORMAT:
        raise BackupError(f"This backup has the format {manifest.format}; {FORMAT} is known here.")
    return manifest


def _unpack(
    archive: tarfile.TarFile, member: tarfile.TarInfo, checksums: Mapping[str, str], staging: Path
) -> None:
    """Unpack one file. Names and kinds are checked before anything is written."""
    if not member.isreg() or not is_ours(member.name) or member.name not in checksums:
        raise BackupError(f"This is no backup of Carrel: it has {member.name!r} in it.")
    target = staging / member.name
    if target.exists():
        raise BackupError(f"This is no backup of Carrel: it has {member.name!r} twice.")
    file = archive.extractfile(member)
    if file is None:
        raise BackupError(f"This backup is damaged: {member.name} cannot be read.")
    with _made(target).open("wb") as out:
        while chunk := file.read(1024 * 1024):
            out.write(chunk)
    if _checksum(target) != checksums[member.name]:
        raise BackupError(f"This backup is damaged: {member.name} is not what was written.")


def _add(archive: tarfile.TarFile, name: str, content: bytes, at: float) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(content), int(at), 0o600
    archive.addfile(member, io.BytesIO(content))


def _made(path: Path) -> Path:
    """The path; the folders above it are created."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def _snapshot(source: Path, target: Path) -> None:
    """Copy a database in use; the scheduler's own program does it, which no package imports."""
    command = [sys.executable, "-P", "-m", "carrel_scheduler.ledger.snapshot"]
    done = subprocess.run(
        [*command, str(source), str(target)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BackupError(f"{source} cannot be copied: {done.stderr.strip()}")


def _check_database(path: Path) -> None:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            (state,) = database.execute("PRAGMA integrity_check").fetchone()
    except sqlite3.DatabaseError as error:
        raise BackupError(f"This backup is damaged: {path.name}: {error}") from error
    if state != "ok":
        raise BackupError(f"This backup is damaged: {path.name}: {state}")


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
