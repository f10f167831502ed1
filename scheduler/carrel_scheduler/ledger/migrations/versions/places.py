"""GPU types and node groups of what is held, in transitions, totals and measured use.

Rows of before tell nothing of it. The scheduler sums up the past anew.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
KEY = ("workload_uid", "gpu_type", "node_group")
TEXTS = ("workload", "project", "user", "kind")
MARKS = ("of_workload", "of_gpu_type", "of_node_group")
NUMBERS = ("last_id", "preemptions", "waiting")
AMOUNTS = ("gpu", "borrowed", "cpu", "memory")


def _make_totals(key: tuple[str, ...], marks: tuple[str, ...]) -> None:
    """The table of sums follows from the transitions, so it begins empty."""
    halves = [f"{name}_{half}" for name in AMOUNTS for half in ("high", "low")]
    op.drop_table("workload_totals")
    op.create_table(
        "workload_totals",
        *(sa.Column(name, sa.Text(), nullable=False) for name in (*key, *TEXTS)),
        *(sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False) for name in marks),
        sa.Column("began_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        *(
            sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)
            for name in (*NUMBERS, *halves)
        ),
        sa.PrimaryKeyConstraint(*key, name=op.f("pk_workload_totals")),
    )
    op.create_index("ix_workload_totals_last_id", "workload_totals", ["last_id"])
    op.create_index("ix_workload_totals_ended_at", "workload_totals", ["ended_at"])


def upgrade() -> None:
    """Add the columns, and fill in the kinds that the transitions tell."""
    op.add_column(
        "transitions", sa.Column("places", sa.Text(), nullable=False, server_default="[]")
    )
    for name in ("kind", "gpu_type", "node_group"):
        op.add_column(
            "gpu_use", sa.Column(name, sa.Text(), nullable=False, server_default=sa.text("''"))
        )
    measured, rows = (
        sa.table(name, sa.column("workload_uid"), sa.column("kind"))
        for name in ("gpu_use", "transitions")
    )
    kind = (
        sa.select(sa.func.max(rows.c.kind))
        .where(rows.c.workload_uid == measured.c.workload_uid)
        .scalar_subquery()
    )
    op.execute(sa.update(measured).values(kind=sa.func.coalesce(kind, "")))
    _make_totals(KEY, MARKS)


def downgrade() -> None:
    """Drop them."""
    _make_totals(KEY[:1], ())
    for name in ("node_group", "gpu_type", "kind"):
        op.drop_column("gpu_use", name)
    op.drop_column("transitions", "places")
