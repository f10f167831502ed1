"""The setting ``patience_seconds`` of projects and departments is ``reservation_delay_seconds``."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
BEFORE = '"patience_seconds":'
AFTER = '"reservation_delay_seconds":'


def _rename(old: str, new: str) -> None:
    """Rename the key in the stored specifications, which are JSON."""
    objects = sa.table("objects", sa.column("uid"), sa.column("kind"))
    specs = sa.table("specs", sa.column("uid"), sa.column("spec"))
    queues = sa.select(objects.c.uid).where(objects.c.kind.in_(("Project", "Department")))
    op.execute(
        sa.update(specs)
        .where(specs.c.uid.in_(queues))
        .values(spec=sa.func.replace(specs.c.spec, old, new))
    )


def upgrade() -> None:
    """Rename it."""
    _rename(BEFORE, AFTER)


def downgrade() -> None:
    """Take the name back."""
    _rename(AFTER, BEFORE)
