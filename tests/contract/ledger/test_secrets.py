"""Secrets lie encrypted in the ledger, and get a new key while no scheduler uses it."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from carrel_hub.rotation import app
from carrel_scheduler.ledger.errors import LedgerNotUsable, SecretsUnreadable
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.rotate import rotate
from carrel_scheduler.ledger.secret_keys import KEYS_FILE, SecretKeys, new_key
from carrel_scheduler.ledger.sql_ledger import SqlLedger
from carrel_schema.governance.secrets import SecretFields
from carrel_schema.scopes import PLATFORM
from contract.ledger.ledger_audit import entry
from contract.ledger.ledger_tools import transition
from contract.ledger.store_tools import workload

PLANTED = "planted-4711"


async def opened(state: Path) -> SqlLedger:
    url = f"sqlite:///{state / 'carrel.sqlite'}"
    names = iter(("uid-a", "uid-b"))
    return await open_ledger(url, clock=lambda: 1.0, ids=lambda: next(names))


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    """A state folder whose ledger has two workloads with secrets."""
    ledger = await opened(tmp_path)
    for name in ("a", "b"):
        made = workload(name)
        row = transition(made, "pending")
        await ledger.create_workload(made, secrets={"KEY": f"{PLANTED}-{name}"}, transition=row)
    await ledger.close()
    (tmp_path / "hub").mkdir()
    told = {
        "state_dir": str(tmp_path),
        "database_url": f"sqlite:///{tmp_path / 'carrel.sqlite'}",
        "ports": dict.fromkeys(("hub", "proxy_api", "scheduler", "console", "gateway"), 1),
    }
    (tmp_path / "hub" / "settings.json").write_text(json.dumps(told))
    return tmp_path


async def secrets(state: Path) -> dict[str, str]:
    ledger = await opened(state)
    try:
        await ledger.encrypt_secrets_anew()
        found = await ledger.secrets_of(["uid-a", "uid-b"])
        return {uid: environment["KEY"] for uid, environment in found.items()}
    finally:
        await ledger.close()


BOTH = {"uid-a": f"{PLANTED}-a", "uid-b": f"{PLANTED}-b"}


def stored(state: Path, change: str = "") -> dict[str, str]:
    with closing(sqlite3.connect(state / "carrel.sqlite")) as database:
        database.execute(change or "SELECT 1")
        database.commit()
        return dict(database.execute("SELECT workload_uid, environment FROM secrets").fetchall())


async def test_no_file_holds_them(state: Path) -> None:
    assert await secrets(state) == BOTH
    for path in state.rglob("*"):
        assert path.is_dir() or PLANTED.encode() not in path.read_bytes(), path


def rotated(state: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["rotate", "--state-dir", str(state), *options])
    return done.exit_code, done.output


async def test_a_new_key_encrypts_all_and_the_old_one_fits_nothing(state: Path) -> None:
    old, before = (state / KEYS_FILE).read_text(), stored(state)
    code, said = await asyncio.to_thread(rotated, state)
    assert (code, said) == (0, "Encrypted the secrets of 2 workloads by a new key.\n")
    assert len((state / KEYS_FILE).read_text().split()) == 1
    for uid, text in stored(state).items():
        assert text != before[uid]
        with pytest.raises(SecretsUnreadable):
            SecretKeys(old.split()).decrypt(uid, text)
    assert await secrets(state) == BOTH


async def test_a_lost_key_is_told_and_its_secrets_can_be_dropped(state: Path) -> None:
    (state / KEYS_FILE).write_text(new_key())
    with pytest.raises(LedgerNotUsable, match="no key fits the secrets of 2 workloads"):
        await secrets(state)
    code, said = await asyncio.to_thread(rotated, state)
    assert (code, "no key fits the secrets of 2 workloads" in said) == (1, True)
    code, said = await asyncio.to_thread(rotated, state, "--discard-unreadable")
    assert (code, said.endswith("; dropped those of 2.\n")) == (0, True), said
    assert await secrets(state) == {}


async def test_what_an_earlier_version_stored_is_encrypted_at_the_next_start(state: Path) -> None:
    plain = f"""'{{"KEY":"{PLANTED}-' || substr(workload_uid, 5) || '"}}'"""
    stored(state, f"UPDATE secrets SET environment = {plain}")
    assert await secrets(state) == BOTH
    assert not any(PLANTED in text for text in stored(state).values())


async def test_the_secrets_of_one_workload_cannot_be_given_to_another(state: Path) -> None:
    stored(
        state,
        "UPDATE secrets SET environment = (SELECT environment FROM secrets"
        " WHERE workload_uid = 'uid-a') WHERE workload_uid = 'uid-b'",
    )
    ledger = await opened(state)
    with pytest.raises(SecretsUnreadable, match="uid-b are those of another"):
        await ledger.secrets("uid-b")
    await ledger.close()


@pytest.mark.parametrize("content", ["", "no key\n"])
async def test_a_file_without_keys_is_named(state: Path, content: str) -> None:
    (state / KEYS_FILE).write_text(content)
    with pytest.raises(LedgerNotUsable, match=KEYS_FILE):
        await opened(state)


async def test_named_secrets_get_the_new_key_too(state: Path) -> None:
    ledger = await opened(state)
    await ledger.named_secrets.put("hub", PLATFORM, SecretFields(data={"A": PLANTED}), "root")
    await ledger.close()
    assert rotated(state) == (0, "Encrypted the secrets of 3 workloads by a new key.\n")
    ledger = await opened(state)
    try:
        assert await ledger.named_secrets.values("hub", PLATFORM) == {"A": PLANTED}
        assert await ledger.encrypt_secrets_anew() == (0, 0)
    finally:
        await ledger.close()


async def test_the_head_of_the_audit_log_is_signed_by_the_new_key(state: Path) -> None:
    ledger = await opened(state)
    await ledger.audit.add([entry("before")])
    await ledger.close()
    await rotate(state / KEYS_FILE, f"sqlite:///{state / 'carrel.sqlite'}")
    again = await opened(state)
    found = await again.audit.verify()
    await again.close()
    assert (found.ok, found.entries) == (True, 1), found.problem
