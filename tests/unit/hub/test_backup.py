"""A backup is whole or refused, and is brought back into a folder that nobody uses."""

import fcntl
import io
import json
import shutil
import sqlite3
import stat
import tarfile
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from carrel.cli.main import HELP
from carrel_hub.backup.archive import FORMAT, Manifest
from carrel_hub.backup.command import backup, restore
from carrel_hub.backup.contents import MANIFEST
from carrel_hub.backup.encryption import MAGIC, WrongPassphrase, decrypt
from carrel_hub.state_folder import LOCK
from carrel_schema.governance.health import LAST_BACKUP_FILE

pytestmark = pytest.mark.slow

PLAIN = {
    "keys.json": b'{"cookie": "00"}',
    "task-token.key": b"0123456789abcdef",
    "hub/accounts.json": b'{"version": 1, "accounts": {}}',
    "hub/ports.json": b"{}",
    "engine/accounts/uids.json": b'{"ada": 61000}',
    "engine/accounts/block.json": b'{"first": 61000}',
    "results/uid-1": b"an answer",
}
DATABASES = ("carrel.sqlite", "hub/jupyterhub.sqlite")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    for name, content in PLAIN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for name in DATABASES:
        with closing(sqlite3.connect(folder / name)) as database:
            database.execute("CREATE TABLE facts (fact TEXT)")
            database.execute("INSERT INTO facts VALUES (?)", (name,))
            database.commit()
    (folder / "logs").mkdir()
    (folder / "engine" / "homes").mkdir()
    (folder / "engine" / "homes" / "thesis.txt").write_text("mine")
    return folder


def run(function: object, *arguments: object) -> tuple[int, str]:
    import typer

    app = typer.Typer()
    app.command()(function)  # type: ignore[type-var]
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    return result.exit_code, " ".join(result.output.split())


def backed_up(state: Path, *more: object) -> Path:
    file = state.parent / "carrel.backup"
    code, said = run(backup, file, "--state-dir", state, *more)
    assert code == 0, said
    return file


def facts(folder: Path, name: str) -> list[str]:
    with closing(sqlite3.connect(folder / name)) as database:
        return [fact for (fact,) in database.execute("SELECT fact FROM facts")]


def secret(folder: Path, text: str) -> Path:
    file = folder / "passphrase"
    file.write_text(f"{text}\n")
    return file


def test_the_health_report_is_told_of_a_backup(state: Path) -> None:
    before = time.time()
    backed_up(state)
    assert before <= json.loads((state / LAST_BACKUP_FILE).read_text()) <= time.time()


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_was_lost_comes_back(state: Path, encrypted: bool) -> None:
    words = secret(state.parent, "of no use to others")
    more = ("--passphrase-file", words) if encrypted else ()
    file = backed_up(state, *more)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not list(state.parent.glob(".*"))
    shutil.rmtree(state)
    code, said = run(restore, file, "--state-dir", state, *more)
    assert code == 0, said
    assert "homes" in said
    for name, content in PLAIN.items():
        assert (state / name).read_bytes() == content
        assert stat.S_IMODE((state / name).stat().st_mode) == 0o600
    assert [facts(state, name) for name in DATABASES] == [[name] for name in DATABASES]
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {path.name for path in state.iterdir()} == {
        *("carrel.sqlite", "keys.json", "task-token.key", LOCK),
        *("hub", "engine", "results"),
    }


def test_databases_are_copied_while_they_are_written_to(state: Path) -> None:
    with closing(sqlite3.connect(state / "carrel.sqlite", isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("INSERT INTO facts VALUES ('in the log only')")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO facts VALUES ('not committed')")
        file = backed_up(state)
        writer.execute("ROLLBACK")
    shutil.rmtree(state)
    assert run(restore, file, "--state-dir", state)[0] == 0
    assert facts(state, "carrel.sqlite") == ["carrel.sqlite", "in the log only"]


def test_an_encrypted_backup_opens_with_its_passphrase_only(state: Path) -> None:
    words = secret(state.parent, "words")
    file = backed_up(state, "--passphrase-file", words)
    content = file.read_bytes()
    assert not tarfile.is_tarfile(file)
    assert decrypt(content, "words").startswith(b"\x1f\x8b")
    for place in (len(MAGIC), len(MAGIC) + 20, len(content) // 2, len(content) - 1):
        changed = bytearray(content)
        changed[place] ^= 1
        with pytest.raises(WrongPassphrase):
            decrypt(bytes(changed), "words")
    for more, expected in (
        ((), "is encrypted"),
        (("--passphrase-file", secret(state.parent, "other words")), "passphrase is wrong"),
    ):
        code, said = run(restore, file, "--state-dir", state.parent / "new", *more)
        assert code == 1
        assert expected in said


def test_nothing_is_replaced_unasked(state: Path) -> None:
    file = backed_up(state)
    code, said = run(backup, file, "--state-dir", state)
    assert (code, "exists already" in said) == (1, True)
    code, said = run(restore, file, "--state-dir", state)
    assert (code, "--force" in said) == (1, True)
    with closing(sqlite3.connect(state / "carrel.sqlite")) as database:
        database.execute("DELETE FROM facts")
        database.commit()
    (state / "carrel.sqlite-wal").write_bytes(b"of another database")
    (state / "results" / "uid-2").write_bytes(b"of a later job")
    assert run(restore, file, "--state-dir", state, "--force")[0] == 0
    assert facts(state, "carrel.sqlite") == ["carrel.sqlite"]
    assert not (state / "results" / "uid-2").exists()
    assert (state / "engine" / "homes" / "thesis.txt").read_text() == "mine"


def test_a_running_instance_is_left_alone(state: Path) -> None:
    file = backed_up(state)
    with (state / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, said = run(restore, file, "--state-dir", state, "--force")
        assert (code, "runs already" in said) == (1, True)
        assert run(backup, state.parent / "second", "--state-dir", state)[0] == 0


def test_a_folder_without_carrel_is_not_backed_up(tmp_path: Path) -> None:
    code, said = run(backup, tmp_path / "file", "--state-dir", tmp_path)
    assert (code, "no Carrel in" in said) == (1, True)


def test_a_ledger_elsewhere_is_named(state: Path) -> None:
    (state / "carrel.sqlite").unlink()
    file = state.parent / "file"
    code, said = run(backup, file, "--state-dir", state)
    assert (code, "pg_dump" in said) == (0, True)


@pytest.mark.parametrize("at", [10, 0.5, 0.99])
def test_a_damaged_file_is_refused_and_nothing_is_touched(state: Path, at: float) -> None:
    file = backed_up(state)
    content = bytearray(file.read_bytes())
    place = int(at * len(content)) if at < 1 else int(at)
    refused_in(state, file, bytes(content[:place]))
    content[place] ^= 0xFF
    if at > 0.4 and at < 1:
        refused_in(state, file, bytes(content))


def refused_in(state: Path, file: Path, content: bytes) -> str:
    """What is said of a file with this content."""
    file.chmod(0o600)
    file.write_bytes(content)
    new = state.parent / "new"
    code, said = run(restore, file, "--state-dir", new)
    assert code == 1, said
    assert not [path for path in new.rglob("*") if path.is_file() and path.name != LOCK]
    return said


def forged(*members: tarfile.TarInfo, names: tuple[str, ...] = ()) -> bytes:
    """An archive that begins as ours do."""
    manifest = Manifest(format=FORMAT, made_at=0.0, checksums=dict.fromkeys(names, "0" * 64))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        first = tarfile.TarInfo(MANIFEST)
        content = msgspec.json.encode(manifest)
        first.size = len(content)
        archive.addfile(first, io.BytesIO(content))
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    made.size = 1 if kind == tarfile.REGTYPE else 0
    return made


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("/etc/outside"),
        member("results/../../outside"),
        member("hub/jupyterhub_config.py"),
        member("results", tarfile.SYMTYPE, "/etc"),
        member("keys.json", tarfile.SYMTYPE, "/etc/shadow"),
        member("keys.json", tarfile.LNKTYPE, "carrel.sqlite"),
        member("keys.json", tarfile.FIFOTYPE),
        member("keys.json", tarfile.CHRTYPE),
    ],
    ids=lambda one: f"{one.name} {one.type.decode()}",
)
def test_what_no_backup_holds_is_refused(state: Path, bad: tarfile.TarInfo) -> None:
    file = backed_up(state)
    said = refused_in(state, file, forged(bad, names=(bad.name,)))
    assert "no backup of Carrel" in said
    assert not (state.parent / "outside").exists()


def test_foreign_files_are_refused(state: Path) -> None:
    file = backed_up(state)
    assert "no backup of Carrel" in refused_in(state, file, b"something else")
    assert "no backup of Carrel" in refused_in(state, file, b"")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.addfile(member("keys.json"), io.BytesIO(b"x"))
    assert "no backup of Carrel" in refused_in(state, file, out.getvalue())
    assert "not what was written" in refused_in(
        state, file, forged(member("keys.json"), names=("keys.json",))
    )
    assert "is missing" in refused_in(state, file, forged(names=("keys.json",)))


def test_the_command_line_says_what_the_commands_say() -> None:
    for name, function in (("backup", backup), ("restore", restore)):
        assert HELP[name] == (function.__doc__ or "").split("\n")[0]
