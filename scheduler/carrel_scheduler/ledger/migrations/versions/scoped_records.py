"""Scoped records: access rules, policies, templates, assets."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "scoped_records",
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("kind", "scope", "name", "content", "created_by", "changed_by")
        ),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "scope", "name", name=op.f("pk_scoped_records")),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("scoped_records")
