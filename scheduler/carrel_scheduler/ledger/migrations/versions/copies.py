"""Models and kept checkpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "copies",
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("uid", "kind", "project", "name")
        ),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("removed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_copies")),
        sa.UniqueConstraint(
            "kind", "project", "name", "version", name=op.f("uq_copies_kind_project_name_version")
        ),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("copies")
