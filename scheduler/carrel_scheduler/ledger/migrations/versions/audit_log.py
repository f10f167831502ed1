"""The audit log and both ends of its chain."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "audit_entries",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in (
                *("user", "on_behalf_of", "verb", "kind", "scope", "name", "outcome"),
                *("entry", "hash"),
            )
        ),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit_entries")),
    )
    for columns in (["at"], ["scope", "seq"]):
        op.create_index(f"ix_audit_entries_{'_'.join(columns)}", "audit_entries", columns)
    op.create_table(
        "audit_head",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("anchor_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("anchor_hash", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_audit_head_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_head")),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("audit_head")
    op.drop_table("audit_entries")
