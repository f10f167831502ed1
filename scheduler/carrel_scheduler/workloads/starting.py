"""What a turn starts, got ready while the turn is being recorded.

Secrets are read and specifications of tasks made while the disk is busy; nothing of it reaches the
engine before the turn is durable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from carrel_scheduler.engines.contract import TaskSpec
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.workloads.book import Book, Entry
from carrel_scheduler.workloads.cycle import Start
from carrel_scheduler.workloads.launch import LaunchSettings, task_specs


@dataclass(frozen=True, slots=True)
class Ready:
    """Tasks of one workload, as the engine is to be told of them."""

    entry: Entry
    tasks: tuple[int, ...]
    specs: Sequence[TaskSpec]


async def get_ready(
    starts: Sequence[Start],
    book: Book,
    facts: Mapping[str, NodeFacts],
    ledger: Ledger,
    settings: LaunchSettings,
) -> Sequence[Ready]:
    """Whatever of these is still live, in the same order."""
    secrets = await ledger.secrets_of([start.uid for start in starts])
    ready: list[Ready] = []
    for start in starts:
        entry = book.get(start.uid)
        if entry is not None:
            own = secrets.get(start.uid, {})
            specs = task_specs(entry, start.tasks, facts, own, settings)
            ready.append(Ready(entry, start.tasks, specs))
    return ready
