"""Create the tables of a new database, migrate an older one, refuse a newer one."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    inspect,
    text,
)
from sqlalchemy.exc import DBAPIError

from longline.core.errors import StoreTooNew
from longline.storage.errors import StoreReadOnly
from longline.storage.schema import metadata, plumbing
from longline.storage.transactions import Backend

_KNOWN = ("0001", "0002", "0003", "0004", "0005")  # oldest first
NEWEST = _KNOWN[-1]
_SCRIPTS = Path(__file__).parent / "migrations"
_version_table = Table(  # as Alembic defines it
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def migrate(engine: Engine, backend: Backend) -> None:
    """Create the tables or run the missing migrations, all in one transaction.

    Raises:
        StoreTooNew: the database has a version that this program does not know.
        StoreReadOnly: it has an older version and cannot be written.
    """
    with engine.begin() as connection:
        backend.lock_tables(connection)  # other processes that open it wait here
        found = _schema_version(connection)
        if found == NEWEST:
            return
        if found is not None and found not in _KNOWN:
            raise StoreTooNew(backend.address, found, NEWEST)
        if found is None:
            create_tables(connection)
            return
        try:
            run_migrations(connection)
        except DBAPIError as error:
            if not isinstance(backend.translate(error), StoreReadOnly):
                raise
            problem = "an older longline wrote it, and it must be migrated"
            raise StoreReadOnly(backend.address, problem) from error


def create_tables(connection: Connection) -> None:
    """Create all tables at the newest version without Alembic.

    Importing Alembic takes 10 MB and longer than creating the tables.
    """
    metadata.create_all(connection, checkfirst=False)
    if connection.dialect.name == "postgresql":
        plumbing.create_all(connection, checkfirst=False)
    _version_table.create(connection, checkfirst=True)  # a full downgrade leaves it empty
    connection.execute(_version_table.insert().values(version_num=NEWEST))


def run_migrations(connection: Connection) -> None:
    """Run the migrations that this database lacks."""
    # Alembic is slow to import, and there is nearly always nothing to migrate.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _schema_version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found
