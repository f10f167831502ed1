"""The logs of the studies of experiments."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "study_log",
        sa.Column("workload_uid", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entry", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workload_uid"],
            ["objects.uid"],
            name=op.f("fk_study_log_workload_uid"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("workload_uid", "number", name=op.f("pk_study_log")),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("study_log")
