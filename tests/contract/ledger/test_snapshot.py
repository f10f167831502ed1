"""Copies of a ledger in use: complete, consistent, readable for nobody else."""

import asyncio
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from carrel_scheduler.ledger.errors import LedgerNotUsable
from carrel_scheduler.ledger.snapshot import write_snapshot
from carrel_schema.objects import Workload
from contract.ledger.ledger_tools import submit
from contract.ledger.ledgers import Ledgers


@pytest.fixture
def database() -> str:
    return "sqlite"


async def test_a_copy_made_while_the_ledger_is_written_to_is_consistent(
    stores: Ledgers, keys_file: Path, tmp_path: Path
) -> None:
    ledger = await stores.open()
    await submit(ledger, "before", TOKEN="s3cret")
    (tmp_path / "copies").mkdir()
    copying = asyncio.create_task(
        asyncio.to_thread(
            write_snapshot, tmp_path / "carrel.sqlite", tmp_path / "copies" / "a.sqlite"
        )
    )
    number = 0
    while not copying.done():
        number += 1
        await submit(ledger, f"meanwhile-{number}")
    await copying
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["a.sqlite"]
    assert stat.S_IMODE((tmp_path / "copies" / "a.sqlite").stat().st_mode) == 0o600
    copy = await Ledgers(f"sqlite:///{tmp_path}/copies/a.sqlite", keys_file).open()
    page = await copy.list(Workload)
    names = [obj.meta.name for obj in page.items]
    assert names == ["before", *(f"meanwhile-{n}" for n in range(1, len(names)))]
    assert (await copy.secrets(page.items[0].meta.uid)) == {"TOKEN": "s3cret"}
    for obj in page.items:
        assert len(await copy.transitions(workload_uid=obj.meta.uid)) == 1
    assert await copy.begin_epoch() == 1
    await copy.close()


async def test_nothing_is_replaced_and_nothing_half_is_left(
    stores: Ledgers, tmp_path: Path
) -> None:
    await (await stores.open()).close()
    write_snapshot(tmp_path / "carrel.sqlite", tmp_path / "while-stopped")
    target = tmp_path / "there"
    target.write_text("mine")
    with pytest.raises(LedgerNotUsable, match="exists already"):
        write_snapshot(tmp_path / "carrel.sqlite", target)
    assert target.read_text() == "mine"
    with pytest.raises(LedgerNotUsable, match="no database"):
        write_snapshot(tmp_path / "none", tmp_path / "new")
    (tmp_path / "text").write_text("no database, but long enough to look like a page" * 99)
    with pytest.raises(LedgerNotUsable, match="not a database"):
        write_snapshot(tmp_path / "text", tmp_path / "new")
    assert not list(tmp_path.glob("new*"))


async def test_it_is_a_program_too(stores: Ledgers, tmp_path: Path) -> None:
    await submit(await stores.open(), "one")
    module = "carrel_scheduler.ledger.snapshot"
    command = [sys.executable, "-m", module, str(tmp_path / "carrel.sqlite"), str(tmp_path / "b")]
    done = await asyncio.to_thread(subprocess.run, command, check=False)
    assert done.returncode == 0
    with sqlite3.connect(tmp_path / "b") as copy:
        assert copy.execute("SELECT count(*) FROM objects").fetchone() == (1,)
    again = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert (again.returncode, "exists already" in again.stderr) == (1, True)
