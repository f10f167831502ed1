"""The first schema: objects, changes, the past, secrets, keys and settings."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TABLES = (
    "secrets",
    "labels",
    "transitions",
    "decisions",
    "metrics",
    "curves",
    "idempotency_keys",
    "settings",
    "changes",
    "specs",
    "objects",
    "store_state",
)


def upgrade() -> None:
    """Make every table, and the one row of ``store_state``."""
    _state_and_objects()
    _parts_of_objects()
    _past()
    _reports()
    _keys_and_settings()


def downgrade() -> None:
    """Drop every table."""
    for table in TABLES:
        op.drop_table(table)


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)


def _time(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=False)


def _row_id() -> sa.Column[int]:
    return sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False)


def _state_and_objects() -> None:
    state = op.create_table(
        "store_state",
        _number("id"),
        _number("version"),
        _number("dropped_through"),
        _number("epoch"),
        sa.CheckConstraint("id = 1", name=op.f("ck_store_state_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_store_state")),
    )
    op.bulk_insert(state, [{"id": 1, "version": 0, "dropped_through": 0, "epoch": 0}])
    op.create_table(
        "objects",
        _text("uid"),
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
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_objects")),
        sa.UniqueConstraint("kind", "project", "name", name=op.f("uq_objects_kind_project_name")),
    )
    _index("objects", "kind", "created_version")
    _index("objects", "kind", "project", "created_version")


def _parts_of_objects() -> None:
    op.create_table(
        "specs",
        _text("uid"),
        _number("generation"),
        _text("spec"),
        sa.PrimaryKeyConstraint("uid", "generation", name=op.f("pk_specs")),
    )
    op.create_table(
        "labels",
        _text("uid"),
        _text("key"),
        _text("value"),
        sa.ForeignKeyConstraint(
            ["uid"], ["objects.uid"], name=op.f("fk_labels_uid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("uid", "key", name=op.f("pk_labels")),
    )
    _index("labels", "key", "value")
    op.create_table(
        "secrets",
        _text("workload_uid"),
        _text("environment"),
        sa.ForeignKeyConstraint(
            ["workload_uid"],
            ["objects.uid"],
            name=op.f("fk_secrets_workload_uid"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("workload_uid", name=op.f("pk_secrets")),
    )
    op.create_table(
        "changes",
        _number("version"),
        _text("kind"),
        _text("type"),
        _text("uid"),
        _number("generation"),
        _text("meta"),
        _text("status"),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_changes")),
    )
    _index("changes", "uid")


def _past() -> None:
    op.create_table(
        "transitions",
        _row_id(),
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
        sa.Column("borrowed", sa.Boolean(), nullable=False),
        _text("node"),
        _text("devices"),
        _text("reason", nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transitions")),
    )
    _index("transitions", "workload_uid", "id", "at")
    _index("transitions", "at")
    op.create_table(
        "decisions",
        _row_id(),
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
    )
    _index("decisions", "workload_uid", "id")


def _reports() -> None:
    op.create_table(
        "curves",
        _text("workload_uid"),
        _text("name"),
        _number("received"),
        _number("stride"),
        sa.PrimaryKeyConstraint("workload_uid", "name", name=op.f("pk_curves")),
    )
    op.create_table(
        "metrics",
        _text("workload_uid"),
        _text("name"),
        _number("ordinal"),
        _time("at"),
        _number("step"),
        sa.Column("value", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("workload_uid", "name", "ordinal", name=op.f("pk_metrics")),
    )


def _keys_and_settings() -> None:
    op.create_table(
        "idempotency_keys",
        _text("scope"),
        _text("key"),
        _text("digest"),
        _text("workload_uid"),
        _time("at"),
        sa.PrimaryKeyConstraint("scope", "key", name=op.f("pk_idempotency_keys")),
    )
    _index("idempotency_keys", "at")
    op.create_table(
        "settings",
        _text("key"),
        _text("value"),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_settings")),
    )


def _index(table: str, *columns: str) -> None:
    op.create_index(op.f("_".join(("ix", table, *columns))), table, list(columns))
