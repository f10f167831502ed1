"""Retention: how long records are kept, and what removing older ones would free."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import Constraint
from carrel_schema.governance.audit import SETTING as AUDIT_SETTING
from carrel_schema.governance.audit import AuditSettings

SETTING: Final = "retention"
RetainedKind = Literal[
    "audit-entries",
    "decisions",
    "samples",
    "hourly-samples",
    "transitions",
    "gpu-use",
    "reported-values",
]
"""The kinds of past data that the ledger keeps."""
Days = Annotated[int, Constraint(ge=1, le=36_600)]


class RetentionFields(msgspec.Struct, frozen=True, kw_only=True):
    """Retention of each kind of record in the ledger, in days; null: for ever.

    Attributes:
        audit_days: entries of the audit log.
        decision_days: decisions of the scheduler, as they are in the history of work.
        sample_days: means of five minutes of the cluster, nodes and projects.
        hourly_sample_days: means of an hour of the same.
    """

    audit_days: Days | None = None
    decision_days: Days | None = None
    sample_days: Annotated[int, Constraint(ge=7, le=36_600)] = 14
    hourly_sample_days: Annotated[int, Constraint(ge=31, le=36_600)] = 400


class RetentionSettings(RetentionFields, frozen=True, kw_only=True):
    """The retention times in force, or those of a dry run."""


class Retained(Answer, frozen=True, kw_only=True):
    """A kind of record that is kept.

    Attributes:
        name: of the kind, stable.
        description: for people.
        days: how long it is kept; null: ``until`` says how long.
        until: what ends it where no number of days does.
        field: of ``RetentionFields`` that says so; empty: none.
        option: the environment variable of the scheduler that says so; empty: none.
        rows: how many there are; null: not counted.
        size_bytes: of their content, without indexes; null: not measured.
        oldest_at: when the oldest was written, epoch seconds; null: not known.
        freed_rows: how many would go at the next removal.
        freed_bytes: their content.
    """

    name: str
    description: str = ""
    days: float | None = None
    until: str = ""
    field: str = ""
    option: str = ""
    rows: int | None = None
    size_bytes: int | None = None
    oldest_at: float | None = None
    freed_rows: int = 0
    freed_bytes: int = 0


class RetentionReport(Answer, frozen=True, kw_only=True):
    """The retention of records, their number, and what removal would free."""

    settings: RetentionSettings = RetentionSettings()
    kinds: Sequence[Retained] = ()


def retention_of(settings: Mapping[str, Any]) -> RetentionFields:
    """Read the retention times from the settings of the ledger."""
    audit = msgspec.convert(settings.get(AUDIT_SETTING) or {}, AuditSettings)
    found = msgspec.convert(settings.get(SETTING) or {}, RetentionFields)
    return msgspec.structs.replace(found, audit_days=audit.retention_days)
