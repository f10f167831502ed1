"""Retention: what there is of each kind, how long it is kept, and what that frees.

What removes it reads the same settings: the sampler, the export of the audit log and
``workloads.retention``, each within an hour.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_schema.governance.audit import SETTING as AUDIT_SETTING
from carrel_schema.governance.audit import AuditSettings
from carrel_schema.governance.retention import (
    SETTING,
    Retained,
    RetainedKind,
    RetentionFields,
    RetentionReport,
    RetentionSettings,
    retention_of,
)

DAY_SECONDS: Final = 86_400.0
FOR_EVER: Final = "for ever"
WITH_WORK: Final = "until its work is deleted"


@dataclass(frozen=True, slots=True)
class LedgerKind:
    """A kind of rows; ``field`` of ``RetentionFields`` has its days, empty: ``until`` ends it."""

    description: str
    field: str = ""
    until: str = FOR_EVER


KINDS: Final[Mapping[RetainedKind, LedgerKind]] = {
    "audit-entries": LedgerKind("Who changed what", "audit_days"),
    "decisions": LedgerKind("Why work was started or evicted, in its history", "decision_days"),
    "samples": LedgerKind("Analytics: means of five minutes", "sample_days"),
    "hourly-samples": LedgerKind("Analytics: means of an hour", "hourly_sample_days"),
    "transitions": LedgerKind("Changes of phases, which consumption is counted from"),
    "gpu-use": LedgerKind("Measured use of GPUs, for consumption"),
    "reported-values": LedgerKind("Metrics that jobs report", until=WITH_WORK),
}


class RetentionTimes:
    """Reads, previews and changes the retention settings."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    async def report(self, wanted: RetentionFields | None = None) -> RetentionReport:
        """The stored records, and those that these settings (or those in force) would delete."""
        settings = wanted or retention_of(await self._deps.ledger.settings())
        kinds = [await self._kind(name, kind, settings) for name, kind in KINDS.items()]
        told = RetentionSettings(**msgspec.structs.asdict(settings))
        return RetentionReport(settings=told, kinds=[*kinds, *self._files()])

    async def put(self, wanted: RetentionFields) -> RetentionReport:
        """Replace the settings."""
        ledger = self._deps.ledger
        stored = (await ledger.settings()).get(AUDIT_SETTING) or {}
        audit = msgspec.convert(stored, AuditSettings)
        if audit.retention_days != wanted.audit_days:
            changed = msgspec.structs.replace(audit, retention_days=wanted.audit_days)
            await ledger.put_setting(AUDIT_SETTING, msgspec.to_builtins(changed))
        kept = msgspec.to_builtins(wanted)
        del kept["audit_days"]  # which the settings of the audit log have
        await ledger.put_setting(SETTING, kept)
        return await self.report()

    async def _kind(
        self, name: RetainedKind, kind: LedgerKind, settings: RetentionFields
    ) -> Retained:
        days: int | None = getattr(settings, kind.field) if kind.field else None
        before = 0.0 if days is None else self._deps.clock() - days * DAY_SECONDS
        found = await self._deps.ledger.stored_amount(name, before)
        return Retained(
            name=name,
            description=kind.description,
            days=days,
            until=kind.until if days is None else "",
            field=kind.field,
            rows=found.rows,
            size_bytes=found.size_bytes,
            oldest_at=found.oldest_at,
            freed_rows=found.old_rows,
            freed_bytes=found.old_bytes,
        )

    def _files(self) -> list[Retained]:
        """Kinds of data in folders, whose retention is set by options of the scheduler."""
        rules = self._deps.retention
        return [
            _of_files(
                "artifacts", "Files that work left", rules.artifact_seconds, "CARREL_ARTIFACT_DAYS"
            ),
            _of_files(
                "checkpoints",
                "Saved states of training",
                rules.checkpoint_seconds,
                "CARREL_CHECKPOINT_DAYS",
            ),
            Retained(name="logs", description="What tasks printed", until=WITH_WORK),
        ]


def _of_files(name: str, description: str, seconds: float, option: str) -> Retained:
    return Retained(
        name=name,
        description=f"{description}, counted from its end",
        days=seconds / DAY_SECONDS if seconds else None,
        until="" if seconds else WITH_WORK,
        option=option,
    )
