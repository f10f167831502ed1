"""Measured use of GPUs by workloads."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table."""
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "gpu_use",
        sa.Column("id", identity, nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("workload_uid", "workload", "project", "user")
        ),
        *(
            sa.Column(name, sa.Double(), nullable=False)
            for name in ("since", "until", "used_gpu_seconds", "idle_gpu_seconds")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gpu_use")),
    )
    op.create_index(op.f("ix_gpu_use_until"), "gpu_use", ["until"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("gpu_use")
