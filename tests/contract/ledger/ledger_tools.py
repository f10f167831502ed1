"""Tools of the contract of the ledger."""

from typing import Any, Protocol

import msgspec

from carrel_scheduler.ledger.records import Decision, Ledger, Transition
from carrel_schema.objects import ReasonInfo, Workload
from contract.ledger.store_tools import workload

NOW = 1_790_000_000.0
DAY = 86_400.0


class Ledgers(Protocol):
    """Opens the ledger under test."""

    async def open(self, *, keep_changes: int = 50_000) -> Ledger:
        """Open the same data again."""
        ...


def transition(obj: Workload, to_phase: str, at: float = NOW, **fields: Any) -> Transition:
    """A change of a workload's phase."""
    return Transition(
        **{
            "at": at,
            "epoch": 1,
            "workload_uid": obj.meta.uid,
            "workload": obj.meta.name,
            "project": obj.meta.project,
            "user": obj.spec.user,
            "kind": obj.spec.kind,
            "attempt": 0,
            "from_phase": obj.status.phase,
            "to_phase": to_phase,
            **fields,
        }
    )


def decision(obj: Workload, cycle: int) -> Decision:
    """A binding."""
    return Decision(
        at=NOW,
        epoch=1,
        cycle=cycle,
        input_version=obj.meta.resource_version,
        action="bind",
        workload_uid=obj.meta.uid,
        workload=obj.meta.name,
        project=obj.meta.project,
        node="node-1",
        devices=(0, 3),
        reason=ReasonInfo(token="Starting", cls="starting", data={"waited": 2.5}),
    )


async def submit(store: Ledger, name: str = "train-1", **secrets: str) -> Workload:
    """A workload as the API creates it."""
    obj = workload(name)
    return await store.create_workload(
        obj, secrets=secrets, transition=transition(obj, "pending", from_phase="")
    )


async def everything(store: Ledger) -> tuple[Any, ...]:
    """The rows that ``record`` could have written, without versions of other writes."""
    page = await store.list(Workload)
    return (page.items, await store.transitions(), await store.decisions())


def without_ids(rows: Any) -> list[Any]:
    """Rows as they were given."""
    return [msgspec.structs.replace(row, id=0) for row in rows]
