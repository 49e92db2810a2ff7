"""Alembic's entry point: it receives an open connection and runs inside its transaction."""

from alembic import context

from longline.storage.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=False,
)
context.run_migrations()
