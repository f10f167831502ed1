"""The first schema, as it was when this step was written; ``rows.tables`` says what is in it.

Each table is a line of columns, ``NAME:TYPE``, with ``*`` where they make the primary key. The
types: ``text``, ``number`` (64 bits), ``real``, ``flag``, ``id`` (numbered by the database), and
``object`` (the uid of an object, with which the row goes). ``?``: it may be empty.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from carrel_scheduler.ledger.rows.tables import NAMING, ROW_ID

revision = "0009"
down_revision = None

TABLES = {
    "store_state": "id:number* version:number dropped_through:number epoch:number",
    "objects": "uid:text* kind:text project:text name:text generation:number"
    " resource_version:number created_version:number created_at:real created_by:text labels:text"
    " status:text phase:text? user:text? workload_kind:text?",
    "specs": "uid:text* generation:number* spec:text",
    "labels": "uid:object* key:text* value:text",
    "secrets": "workload_uid:object* environment:text",
    "changes": "version:number* kind:text type:text uid:text generation:number meta:text"
    " status:text",
    "transitions": "id:id* at:real epoch:number workload_uid:text workload:text project:text"
    " user:text kind:text attempt:number from_phase:text to_phase:text gpu_milli:number"
    " cpu_milli:number memory_bytes:number borrowed:flag node:text devices:text reason:text?"
    " places:text",
    "decisions": "id:id* at:real epoch:number cycle:number input_version:number action:text"
    " workload_uid:text workload:text project:text node:text devices:text reason:text?",
    "curves": "workload_uid:text* name:text* received:number stride:number",
    "metrics": "workload_uid:text* name:text* ordinal:number* at:real step:number value:real?",
    "idempotency_keys": "scope:text* key:text* digest:text workload_uid:text at:real",
    "settings": "key:text* value:text",
    "study_log": "workload_uid:object* number:number* entry:text",
    "gpu_use": "id:id* workload_uid:text workload:text project:text user:text since:real"
    " until:real used_gpu_seconds:real idle_gpu_seconds:real kind:text gpu_type:text"
    " node_group:text",
    "copies": "uid:text* kind:text project:text name:text version:number content:text removed:flag",
    "scoped_records": "kind:text* scope:text* name:text* content:text created_by:text"
    " changed_by:text version:number created_at:real changed_at:real",
    "audit_entries": "seq:number* at:real user:text on_behalf_of:text verb:text kind:text"
    " scope:text name:text outcome:text entry:text hash:text",
    "audit_head": "id:number* seq:number hash:text anchor_seq:number anchor_hash:text"
    " signature:text",
    "samples": "step:number* subject:text* at:number* content:text",
    "workload_totals": "workload_uid:text* gpu_type:text* node_group:text* workload:text"
    " project:text user:text kind:text of_workload:number of_gpu_type:number"
    " of_node_group:number began_at:real ended_at:real? last_id:number preemptions:number"
    " waiting:number gpu_high:number gpu_low:number borrowed_high:number borrowed_low:number"
    " cpu_high:number cpu_low:number memory_high:number memory_low:number",
}
INDICES = (
    ("objects", "kind", "created_version"),
    ("objects", "kind", "project", "created_version"),
    ("labels", "key", "value"),
    ("changes", "uid"),
    ("transitions", "workload_uid", "id", "at"),
    ("transitions", "at"),
    ("decisions", "workload_uid", "id"),
    ("idempotency_keys", "at"),
    ("gpu_use", "until"),
    ("audit_entries", "at"),
    ("audit_entries", "scope", "seq"),
    ("samples", "step", "at"),
    ("workload_totals", "last_id"),
    ("workload_totals", "ended_at"),
)
UNIQUE = {
    "objects": ("kind", "project", "name"),
    "copies": ("kind", "project", "name", "version"),
}
ONE_ROW = ("store_state", "audit_head")
DEFAULTS: dict[tuple[str, str], Any] = {
    ("transitions", "places"): "[]",
    **{("gpu_use", name): sa.text("''") for name in ("kind", "gpu_type", "node_group")},
}
TYPES: dict[str, Any] = {
    "text": sa.Text(),
    "number": sa.BigInteger(),
    "real": sa.Double(),
    "flag": sa.Boolean(),
    "id": ROW_ID,
    "object": sa.Text(),
}


def upgrade() -> None:
    """Make every table, and the one row of ``store_state``."""
    schema = _schema()
    schema.create_all(op.get_bind())
    state = schema.tables["store_state"]
    op.bulk_insert(state, [{"id": 1, "version": 0, "dropped_through": 0, "epoch": 0}])


def downgrade() -> None:
    """Drop every table."""
    _schema().drop_all(op.get_bind())


def _schema() -> sa.MetaData:
    schema = sa.MetaData(naming_convention=NAMING)
    for name, columns in TABLES.items():
        table = sa.Table(name, schema, *(_column(name, one) for one in columns.split()))
        if name in ONE_ROW:
            table.append_constraint(sa.CheckConstraint("id = 1", name="one_row"))
        if name in UNIQUE:
            table.append_constraint(sa.UniqueConstraint(*UNIQUE[name]))
    for name, *fields in INDICES:
        sa.Index(None, *(schema.tables[name].c[field] for field in fields))
    return schema


def _column(table: str, written: str) -> sa.Column[Any]:
    name, _, kind = written.partition(":")
    plain = kind.rstrip("*?")
    reference = [sa.ForeignKey("objects.uid", ondelete="CASCADE")] if plain == "object" else []
    return sa.Column(
        name,
        TYPES[plain],
        *reference,
        primary_key=kind.endswith("*"),
        nullable=kind.endswith("?"),
        autoincrement="auto" if plain == "id" else False,
        server_default=DEFAULTS.get((table, name)),
    )
