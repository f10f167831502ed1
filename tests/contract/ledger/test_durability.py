"""What a process was promised is there after it was killed at any instant."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from carrel_scheduler.ledger.audit.contract import AuditFilter
from carrel_scheduler.ledger.records import Ledger
from carrel_schema.objects import Workload
from contract.ledger.ledger_tools import Ledgers

CHILD = Path(__file__).with_name("creating_child.py")
KILLS = {"sqlite": 12, "postgresql": 4}
MOST_LINES = 400


def killed_child(url: str, keys_file: Path, prefix: str, after_lines: int) -> dict[str, str]:
    """Names by uid that the child was promised before it was killed."""
    command = [sys.executable, str(CHILD), url, str(keys_file), prefix]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(after_lines)]
        child.kill()
        lines += child.stdout.readlines()
    return dict(line.decode().split() for line in lines)


async def check(ledger: Ledger, promised: dict[str, str]) -> None:
    """Everything promised is there, and nothing is there by half."""
    # Waits for a commit that a server may still be busy with.
    await ledger.begin_epoch()
    stored = {obj.meta.uid: obj.meta.name for obj in (await ledger.list(Workload)).items}
    assert promised.items() <= stored.items()
    rows = await ledger.transitions(limit=10**6)
    assert Counter(row.workload_uid for row in rows) == Counter(stored.keys())
    told = [one.uid for one in await ledger.audit.read(AuditFilter(), limit=10**6)]
    assert Counter(told) == Counter(stored.keys())
    assert (await ledger.audit.verify()).ok
    for uid in list(stored)[-40:]:
        assert await ledger.secrets(uid) == {"NAME": stored[uid]}
    watch = ledger.watch(Workload, 0)
    changes = [await anext(watch) for _ in stored]
    assert [change.object.meta.uid for change in changes] == list(stored)


@pytest.mark.slow
async def test_no_promise_is_broken_by_a_kill(
    stores: Ledgers, database: str, database_url: str, keys_file: Path
) -> None:
    chance = random.Random(7)
    promised: dict[str, str] = {}
    for turn in range(KILLS[database]):
        lines = chance.randint(1, MOST_LINES)
        seen = killed_child(database_url, keys_file, f"run-{turn}", lines)
        assert len(seen) >= 1
        promised |= seen
    await check(await stores.open(), promised)
