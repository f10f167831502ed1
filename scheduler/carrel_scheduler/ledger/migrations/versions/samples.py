"""Samples of the cluster, its nodes and its projects over time."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "samples",
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("step", "subject", "at", name=op.f("pk_samples")),
    )
    op.create_index("ix_samples_step_at", "samples", ["step", "at"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("samples")
