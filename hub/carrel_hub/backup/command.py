"""The command lines of ``carrel backup`` and ``carrel restore``."""

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from carrel_hub.state_folder import LOCK, default_state_dir
from carrel_schema.governance.health import LAST_BACKUP_FILE

LEDGER_ELSEWHERE: Final = (
    "the ledger, which is not in this folder: pg_dump --format=custom, where it is in PostgreSQL"
)
FILES_OF_USERS: Final = "homes, checkpoints and event files: copy the folder engine/ for these"

StateDir = Annotated[Path | None, typer.Option(help="The state folder of `carrel up`.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(help="A file whose first line is the passphrase that the backup is encrypted by."),
]


def backup(
    file: Annotated[Path, typer.Argument(help="Where to write it; must not exist yet.")],
    passphrase_file: PassphraseFile = None,
    state_dir: StateDir = None,
) -> None:
    """Write users, keys, projects, history and pending work into one file."""
    from carrel_hub.backup import archive

    state = _folder(state_dir)
    elsewhere = [FILES_OF_USERS]
    if not (state / "carrel.sqlite").exists():
        elsewhere.insert(0, LEDGER_ELSEWHERE)
    try:
        passphrase = _passphrase(passphrase_file)
        with _staging(file.absolute().parent) as staging:
            manifest = archive.collect(state, Path(staging), time.time(), elsewhere)
            if not manifest.checksums:
                _fail(f"There is no Carrel in {state}.")
            archive.write(Path(staging), manifest, file.absolute(), passphrase)
    except archive.BackupError as error:
        _fail(str(error))
    _note_backup(state, manifest.made_at)
    how = "encrypted" if passphrase else "not encrypted, and it holds keys: keep it to yourself"
    typer.echo(f"Wrote {file} with {len(manifest.checksums)} files, {how}.")
    for one in elsewhere:
        typer.echo(f"Not in it: {one}.")


def restore(
    file: Annotated[Path, typer.Argument(help="What `carrel backup` wrote.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace what a state folder in use holds.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    state_dir: StateDir = None,
) -> None:
    """Bring back what `carrel backup` wrote; Carrel has to be stopped."""
    from carrel_hub.backup import archive
    from carrel_hub.up.checks import StartupError, only_one

    state = _folder(state_dir)
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        with only_one(state):
            if not force and (found := _in_use(state)):
                _fail(f"{state} holds {found} already: choose another --state-dir, or --force.")
            with _staging(state) as staging:
                manifest = archive.read(file, Path(staging), _passphrase(passphrase_file))
                _put_in_place(Path(staging), state, list(manifest.checksums))
    except (archive.BackupError, StartupError) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{state} cannot be written: {error.strerror}")
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(manifest.made_at))
    typer.echo(f"Restored {len(manifest.checksums)} files of {made} to {state}.")
    for one in manifest.elsewhere:
        typer.echo(f"Not in it: {one}.")


def _note_backup(state: Path, made_at: float) -> None:
    """Tell the scheduler, whose health report says when the last backup was made."""
    place = state / LAST_BACKUP_FILE
    fresh = place.with_suffix(".new")
    try:
        fresh.write_text(json.dumps(made_at))
        fresh.chmod(0o644)  # whoever the scheduler runs as; the folder is not open to others
        fresh.replace(place)
    except OSError as error:
        typer.echo(f"The health report does not know of it: {place}: {error.strerror}", err=True)


def _folder(state_dir: Path | None) -> Path:
    return (state_dir or default_state_dir()).expanduser().absolute()


def _staging(parent: Path) -> "tempfile.TemporaryDirectory[str]":
    """A folder of mode 0700 on the same disk."""
    try:
        return tempfile.TemporaryDirectory(dir=parent, prefix=".carrel-backup-")
    except OSError as error:
        _fail(f"{parent} cannot be written: {error.strerror}")


def _passphrase(file: Path | None) -> str:
    """The first line of the file; empty without one."""
    from carrel_hub.backup.archive import BackupError

    if file is None:
        return ""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BackupError(f"{file} cannot be read: {error}") from error
    if not lines or not lines[0].strip():
        raise BackupError(f"{file} is empty: its first line should be the passphrase.")
    return lines[0].strip()


def _in_use(state: Path) -> str:
    """The name of a file that an installation has written; empty when there is none."""
    empty = {"hub", "logs", "engine"}
    for path in sorted(state.iterdir()):
        if path.name == LOCK or (path.name in empty and not any(path.iterdir())):
            continue
        return path.name
    return ""


def _put_in_place(staging: Path, state: Path, names: list[str]) -> None:
    """Move checked files to where they belong; logs of replaced databases go first."""
    from carrel_hub.backup.contents import BESIDE_DATABASES, DATABASES, FOLDERS

    for folder in FOLDERS:
        shutil.rmtree(state / folder, ignore_errors=True)
    for name in names:
        target = state / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if name in DATABASES:
            for beside in BESIDE_DATABASES:
                target.with_name(target.name + beside).unlink(missing_ok=True)
        (staging / name).chmod(0o600)
        os.replace(staging / name, target)  # noqa: PTH105 - says what it does


def _fail(sentence: str) -> NoReturn:
    typer.echo(sentence, err=True)
    raise typer.Exit(1)
