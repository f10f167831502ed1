"""What is special about SQLite: the file, its folder, its settings, a full disk."""

import asyncio
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from carrel_scheduler.ledger.errors import LedgerNotUsable, StorageFull
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.sql_ledger import SqlLedger
from carrel_schema.objects import ReasonInfo, Workload
from contract.ledger.ledger_tools import submit, transition
from contract.ledger.ledgers import Ledgers
from contract.ledger.store_tools import take

UNPRIVILEGED = 65534


@pytest.fixture
def database() -> str:
    return "sqlite"


async def refused(url: str) -> LedgerNotUsable:
    with pytest.raises(LedgerNotUsable) as caught:
        await open_ledger(url, clock=lambda: 0.0, ids=lambda: "uid")
    return caught.value


async def test_only_its_owner_can_read_the_files(stores: Ledgers, tmp_path: Path) -> None:
    (tmp_path / "carrel.sqlite").touch(mode=0o644)
    ledger = await stores.open()
    await submit(ledger, TOKEN="s3cret")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes) == {"carrel.sqlite" + end for end in ("", "-wal", "-shm", ".lock")}
    assert set(modes.values()) == {0o600}


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    error = await refused(f"sqlite:///{tmp_path}/none/carrel.sqlite")
    assert error.code == "folder_missing"
    assert str(tmp_path / "none") in str(error)


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "carrel.sqlite").write_text("no database, but long enough to look like a page" * 99)
    error = await refused(f"sqlite:///{tmp_path}/carrel.sqlite")
    assert error.code == "file_not_usable"
    assert "not a database" in str(error)


async def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "carrel.sqlite").mkdir()
    assert (await refused(f"sqlite:///{tmp_path}/carrel.sqlite")).code == "file_not_usable"


SCRIPT = f"""
import os, sys
from pathlib import Path
from carrel_scheduler.ledger.database import prepared
from carrel_scheduler.ledger.errors import LedgerNotUsable
if os.geteuid() == 0:
    os.setgroups([]); os.setgid({UNPRIVILEGED}); os.setuid({UNPRIVILEGED})
try:
    with prepared(Path(sys.argv[1]), "the database"):
        print("no error")
except LedgerNotUsable as error:
    print(error.code)
"""


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    """Asked in a process of its own, which gives up root's rights over files."""
    tmp_path.chmod(0o555)
    for path, expected in (
        ("carrel.sqlite", "folder_not_writable"),
        ("below/carrel.sqlite", "folder_missing"),
        (str(tmp_path / "carrel.sqlite"), "folder_not_writable"),
    ):
        command = [sys.executable, "-c", SCRIPT, path]
        answer = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True)
        assert answer.stdout.strip() == expected
    tmp_path.chmod(0o755)


@pytest.mark.parametrize(
    "url", ["", "nonsense", "sqlite://", "sqlite:///:memory:", "mysql://u:pw@h/d"]
)
async def test_other_urls_are_refused(url: str) -> None:
    error = await refused(url)
    assert error.code == "unknown_database"
    assert "pw" not in str(error)


async def test_commits_wait_for_the_disk(stores: Ledgers) -> None:
    ledger = await stores.open()
    with ledger._database.writer.connect() as connection:
        for pragma, expected in (("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)):
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one() == expected


async def test_a_full_disk_is_reported_and_survived(stores: Ledgers) -> None:
    ledger = await stores.open()
    made = await submit(ledger, "before")
    set_most_pages(ledger, 1)
    results = await asyncio.gather(
        *(submit(ledger, f"full-{number}", PAD="x" * 50_000) for number in range(5)),
        return_exceptions=True,
    )
    assert {type(result) for result in results} == {StorageFull}
    assert "xxxx" not in str(results)
    set_most_pages(ledger, 2**30)
    after = await submit(ledger, "after")
    assert [obj.meta.name for obj in (await ledger.list(Workload)).items] == ["before", "after"]
    changes = await take(ledger.watch(Workload, made.meta.resource_version), 1)
    assert [change.object for change in changes] == [after]


async def test_what_the_scheduler_records_waits_for_room(stores: Ledgers) -> None:
    ledger = await stores.open()
    made = await submit(ledger, "before")
    epoch = await ledger.begin_epoch()
    set_most_pages(ledger, 1)
    made.status.reason = ReasonInfo(token="Long", cls="fixed", sentence="x" * 100_000)
    recording = asyncio.ensure_future(
        ledger.record(epoch=epoch, statuses=[made], transitions=[transition(made, "running")])
    )
    with pytest.raises(StorageFull):
        await submit(ledger, "full", PAD="x" * 100_000)
    assert not recording.done()
    assert "full" in ledger.trouble
    assert (await ledger.get_by_uid(Workload, made.meta.uid)).status.reason is None
    set_most_pages(ledger, 2**30)
    [meta] = await recording
    stored = await ledger.get_by_uid(Workload, made.meta.uid)
    assert (stored.meta, stored.status.reason) == (meta, made.status.reason)
    rows = await ledger.transitions(workload_uid=made.meta.uid)
    assert [row.to_phase for row in rows] == ["pending", "running"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"kind": 5}'])
async def test_an_object_that_cannot_be_read_is_set_aside(
    stores: Ledgers, tmp_path: Path, damage: str
) -> None:
    ledger = await stores.open()
    first = await submit(ledger, "first")
    bad = await submit(ledger, "bad")
    with sqlite3.connect(tmp_path / "carrel.sqlite") as connection:
        connection.execute("UPDATE specs SET spec = ? WHERE uid = ?", (damage, bad.meta.uid))
    connection.close()
    last = await submit(ledger, "last")
    page = await ledger.list(Workload)
    assert [obj.meta.uid for obj in page.items] == [first.meta.uid, last.meta.uid]
    changes = await take(ledger.watch(Workload, 0), 2)
    assert [change.object.meta.uid for change in changes] == [first.meta.uid, last.meta.uid]
    [item] = ledger._quarantine.items
    assert (item.key, item.name) == (bad.meta.uid, f"{bad.meta.project}/bad")


def set_most_pages(ledger: SqlLedger, count: int) -> None:
    """The database file may not grow beyond this (never below what it is)."""
    with ledger._database.writer.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count={count}")
