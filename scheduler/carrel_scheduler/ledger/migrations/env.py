"""Alembic's entry: runs the steps on the connection that ``upgrade`` holds."""

from alembic import context

from carrel_scheduler.ledger.columns.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
