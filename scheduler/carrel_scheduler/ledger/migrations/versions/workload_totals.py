"""Totals of what each workload held, from its transitions."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
TEXTS = ("workload_uid", "workload", "project", "user", "kind")
NUMBERS = ("last_id", "preemptions", "waiting")
AMOUNTS = ("gpu", "borrowed", "cpu", "memory")


def upgrade() -> None:
    """Make the table; the scheduler fills it."""
    halves = [f"{name}_{half}" for name in AMOUNTS for half in ("high", "low")]
    op.create_table(
        "workload_totals",
        *(sa.Column(name, sa.Text(), nullable=False) for name in TEXTS),
        sa.Column("began_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        *(
            sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)
            for name in (*NUMBERS, *halves)
        ),
        sa.PrimaryKeyConstraint("workload_uid", name=op.f("pk_workload_totals")),
    )
    op.create_index("ix_workload_totals_last_id", "workload_totals", ["last_id"])
    op.create_index("ix_workload_totals_ended_at", "workload_totals", ["ended_at"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("workload_totals")
