"""The tables. ``migrations`` builds the same ones step by step; a test compares the two.

* ``store_state`` is one row: the store's version, up to where changes were dropped, the epoch.
  Every writing transaction locks it first, so versions become visible in their order.
* ``objects`` holds what changes often; specifications are rows of their own in ``specs``, written
  once per generation, so a status change never copies a job's files again. ``changes`` refers to
  them too. ``labels`` is an index over the labels of ``objects``.
* ``study_log`` is what happened in the studies of experiments, entry by entry; it goes with its
  experiment.
* ``copies`` are models and kept checkpoints; a removed one keeps its row, so that its version is
  never given again.
* ``workload_totals`` follow from ``transitions``; see ``totals``.
* ``samples`` are means over time; see ``ledger.samples``.
* ``scoped_records`` are what admins and users configure, each in a scope; see
  ``ledger.scoped_records``.
* ``audit_entries`` are the audit log, ``audit_head`` is one row: both ends of its chain.
* ``transitions``, ``decisions``, ``metrics`` and ``gpu_use`` are the past: no reference to
  ``objects``, because they outlive them. Secrets go with their object.

Structures are JSON text; times are epoch seconds.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)
PLACE: Final = ("gpu_type", "node_group")
# SQLite counts rows by itself only in a column of the exact type INTEGER.
ROW_ID: Final = BigInteger().with_variant(Integer(), "sqlite")


def _text(name: str, *, primary_key: bool = False, nullable: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=primary_key, nullable=nullable)


def _number(name: str, *, primary_key: bool = False) -> Column[int]:
    return Column(name, BigInteger, primary_key=primary_key, nullable=False, autoincrement=False)


def _time(name: str) -> Column[float]:
    return Column(name, Double, nullable=False)


store_state: Final = Table(
    "store_state",
    metadata,
    _number("id", primary_key=True),
    _number("version"),
    _number("dropped_through"),
    _number("epoch"),
    CheckConstraint("id = 1", name="one_row"),
)

objects: Final = Table(
    "objects",
    metadata,
    _text("uid", primary_key=True),
    _text("kind"),
    _text("project"),
    _text("name"),
    _number("generation"),
    _number("resource_version"),
    _number("created_version"),
    _time("created_at"),
    _text("created_by"),
    _text("labels"),
    _text("status"),
    _text("phase", nullable=True),
    _text("user", nullable=True),
    _text("workload_kind", nullable=True),
    UniqueConstraint("kind", "project", "name"),
    Index(None, "kind", "created_version"),
    Index(None, "kind", "project", "created_version"),
)

specs: Final = Table(
    "specs",
    metadata,
    _text("uid", primary_key=True),
    _number("generation", primary_key=True),
    _text("spec"),
)

labels: Final = Table(
    "labels",
    metadata,
    Column("uid", Text, ForeignKey("objects.uid", ondelete="CASCADE"), primary_key=True),
    _text("key", primary_key=True),
    _text("value"),
    Index(None, "key", "value"),
)

changes: Final = Table(
    "changes",
    metadata,
    _number("version", primary_key=True),
    _text("kind"),
    _text("type"),
    _text("uid"),
    _number("generation"),
    _text("meta"),
    _text("status"),
    Index(None, "uid"),
)

secrets: Final = Table(
    "secrets",
    metadata,
    Column("workload_uid", Text, ForeignKey("objects.uid", ondelete="CASCADE"), primary_key=True),
    _text("environment"),
)

transitions: Final = Table(
    "transitions",
    metadata,
    Column("id", ROW_ID, primary_key=True),
    _time("at"),
    _number("epoch"),
    _text("workload_uid"),
    _text("workload"),
    _text("project"),
    _text("user"),
    _text("kind"),
    _number("attempt"),
    _text("from_phase"),
    _text("to_phase"),
    _number("gpu_milli"),
    _number("cpu_milli"),
    _number("memory_bytes"),
    Column("borrowed", Boolean, nullable=False),
    _text("node"),
    # Held resources by GPU types and groups of nodes.
    Column("places", Text, nullable=False, server_default="[]"),
    _text("devices"),
    _text("reason", nullable=True),
    # With the time, so that the ends of all spans are read from the index alone.
    Index(None, "workload_uid", "id", "at"),
    Index(None, "at"),
)

workload_totals: Final = Table(
    "workload_totals",
    metadata,
    _text("workload_uid", primary_key=True),
    _text("gpu_type", primary_key=True),
    _text("node_group", primary_key=True),
    *(_text(name) for name in ("workload", "project", "user", "kind")),
    # 1 in one row of the workload; of those with its GPU type; of those with its node group.
    *(_number(f"of_{what}") for what in ("workload", "gpu_type", "node_group")),
    _time("began_at"),
    # None while it waits or holds anything.
    Column("ended_at", Double, nullable=True),
    _number("last_id"),
    _number("preemptions"),
    _number("waiting"),
    *(
        _number(f"{name}_{half}")
        for name in ("gpu", "borrowed", "cpu", "memory")
        for half in ("high", "low")
    ),
    Index(None, "last_id"),
    Index(None, "ended_at"),
)

decisions: Final = Table(
    "decisions",
    metadata,
    Column("id", ROW_ID, primary_key=True),
    _time("at"),
    _number("epoch"),
    _number("cycle"),
    _number("input_version"),
    _text("action"),
    _text("workload_uid"),
    _text("workload"),
    _text("project"),
    _text("node"),
    _text("devices"),
    _text("reason", nullable=True),
    Index(None, "workload_uid", "id"),
)

curves: Final = Table(
    "curves",
    metadata,
    _text("workload_uid", primary_key=True),
    _text("name", primary_key=True),
    _number("received"),
    _number("stride"),
)

metrics: Final = Table(
    "metrics",
    metadata,
    _text("workload_uid", primary_key=True),
    _text("name", primary_key=True),
    _number("ordinal", primary_key=True),
    _time("at"),
    _number("step"),
    # No value is "not a number", which SQLite cannot hold.
    Column("value", Double, nullable=True),
)

gpu_use: Final = Table(
    "gpu_use",
    metadata,
    Column("id", ROW_ID, primary_key=True),
    _text("workload_uid"),
    _text("workload"),
    _text("project"),
    _text("user"),
    _time("since"),
    _time("until"),
    Column("used_gpu_seconds", Double, nullable=False),
    Column("idle_gpu_seconds", Double, nullable=False),
    *(Column(name, Text, nullable=False, server_default=text("''")) for name in ("kind", *PLACE)),
    Index(None, "until"),
)

study_log: Final = Table(
    "study_log",
    metadata,
    Column("workload_uid", Text, ForeignKey("objects.uid", ondelete="CASCADE"), primary_key=True),
    _number("number", primary_key=True),
    _text("entry"),
)

copies: Final = Table(
    "copies",
    metadata,
    _text("uid", primary_key=True),
    _text("kind"),
    _text("project"),
    _text("name"),
    _number("version"),
    _text("content"),
    Column("removed", Boolean, nullable=False),
    UniqueConstraint("kind", "project", "name", "version"),
)

scoped_records: Final = Table(
    "scoped_records",
    metadata,
    _text("kind", primary_key=True),
    _text("scope", primary_key=True),
    _text("name", primary_key=True),
    _text("content"),
    _number("version"),
    _time("created_at"),
    _text("created_by"),
    _time("changed_at"),
    _text("changed_by"),
)

samples: Final = Table(
    "samples",
    metadata,
    _number("step", primary_key=True),
    _text("subject", primary_key=True),
    _number("at", primary_key=True),
    _text("content"),
    Index(None, "step", "at"),
)

audit_entries: Final = Table(
    "audit_entries",
    metadata,
    _number("seq", primary_key=True),
    _time("at"),
    *(_text(name) for name in ("user", "on_behalf_of", "verb", "kind", "scope", "name", "outcome")),
    _text("entry"),
    _text("hash"),
    Index(None, "at"),
    Index(None, "scope", "seq"),
)

audit_head: Final = Table(
    "audit_head",
    metadata,
    _number("id", primary_key=True),
    _number("seq"),
    _text("hash"),
    _number("anchor_seq"),
    _text("anchor_hash"),
    _text("signature"),
    CheckConstraint("id = 1", name="one_row"),
)

idempotency_keys: Final = Table(
    "idempotency_keys",
    metadata,
    _text("scope", primary_key=True),
    _text("key", primary_key=True),
    _text("digest"),
    _text("workload_uid"),
    _time("at"),
    Index(None, "at"),
)

settings: Final = Table(
    "settings",
    metadata,
    _text("key", primary_key=True),
    _text("value"),
)
