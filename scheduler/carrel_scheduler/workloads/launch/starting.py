"""What a turn starts, got ready while the turn is being recorded.

Secrets are read and specifications of tasks made while the disk is busy; nothing of it reaches the
engine before the turn is durable.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from carrel_scheduler.engines.contract import TaskSpec
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.workloads.cache import CachedWorkload, WorkloadCache
from carrel_scheduler.workloads.launch.task_specs import LaunchSettings, task_specs
from carrel_scheduler.workloads.reconcile.pass_changes import Start

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ready:
    """Tasks of one workload, as the engine is to be told of them.

    ``refusal``: why it cannot be told of them; empty where it can.
    """

    entry: CachedWorkload
    tasks: tuple[int, ...]
    specs: Sequence[TaskSpec]
    refusal: str = ""


async def get_ready(
    starts: Sequence[Start],
    cache: WorkloadCache,
    facts: Mapping[str, NodeFacts],
    ledger: Ledger,
    settings: LaunchSettings,
) -> Sequence[Ready]:
    """Whatever of these is still live, in the same order."""
    secrets = await ledger.secrets_of([start.uid for start in starts])
    ready: list[Ready] = []
    for start in starts:
        entry = cache.get(start.uid)
        if entry is not None:
            own = secrets.get(start.uid, {})
            ready.append(_ready(entry, start.tasks, facts, own, settings))
    return ready


def _ready(
    entry: CachedWorkload,
    tasks: tuple[int, ...],
    facts: Mapping[str, NodeFacts],
    secrets: Mapping[str, str],
    settings: LaunchSettings,
) -> Ready:
    try:
        return Ready(entry, tasks, task_specs(entry, tasks, facts, secrets, settings))
    except Exception:
        log.exception("the tasks of workload %s cannot be described to the engine", entry.uid)
        return Ready(entry, tasks, (), "its tasks cannot be described; the log says why")
