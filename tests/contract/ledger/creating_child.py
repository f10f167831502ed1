"""A process that creates workloads as fast as it can and says which ones it was promised.

``creating_child.py URL KEYS_FILE PREFIX``: one line ``uid name`` on stdout for each create that
returned.
"""

import asyncio
import itertools
import os
import sys
import time
import uuid
from pathlib import Path

from carrel_scheduler.ledger.audit.actor import Actor, begin
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Transition
from carrel_scheduler.ledger.secret_keys import SecretKeys
from carrel_schema.objects import Meta, Workload, WorkloadSpec

CALLERS = 32


async def main(url: str, keys_file: str, prefix: str) -> None:
    """Create until killed."""
    keys = SecretKeys.load_or_create(Path(keys_file))
    ledger = await open_ledger(url, clock=time.time, ids=lambda: uuid.uuid4().hex, keys=keys)
    numbers = itertools.count()

    async def create() -> None:
        begin(Actor(at=1.0, user="ada"))
        while True:
            name = f"{prefix}-{next(numbers)}"
            row = Transition(
                at=time.time(),
                epoch=0,
                workload_uid="",
                workload=name,
                project="vision",
                user="ada",
                kind="training",
                attempt=0,
                from_phase="",
                to_phase="pending",
            )
            obj = Workload(meta=Meta(name=name, project="vision"), spec=WorkloadSpec(user="ada"))
            made = await ledger.create_workload(obj, secrets={"NAME": name}, transition=row)
            # One write per line: a kill cannot leave half of one.
            os.write(1, f"{made.meta.uid} {name}\n".encode())

    await asyncio.gather(*(create() for _ in range(CALLERS)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
