"""Versions of the tables: an old database is migrated, a new one created, a newer one refused."""

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


def bring_up_to_date(engine: Engine, backend: Backend) -> None:
    """Create the tables or run the missing migrations, all in one transaction.

    Raises:
        StoreTooNew: the database has a version that this program does not know.
        StoreReadOnly: it has an older one, and may only be read.
    """
    with engine.begin() as connection:
        backend.lock_tables(connection)  # other processes that open it too wait here
        found = _version(connection)
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
            if not isinstance(backend.translated(error), StoreReadOnly):
                raise
            problem = "it has to be brought up to date: an older longline wrote it"
            raise StoreReadOnly(backend.address, problem) from error


def create_tables(connection: Connection) -> None:
    """Create all tables at the newest version, as the migrations would, but without Alembic.

    Importing Alembic takes 10 MB and more time than creating the tables does.
    """
    metadata.create_all(connection, checkfirst=False)
    if connection.dialect.name == "postgresql":
        plumbing.create_all(connection, checkfirst=False)
    _version_table.create(connection, checkfirst=True)  # a downgrade to nothing leaves it, empty
    connection.execute(_version_table.insert().values(version_num=NEWEST))


def run_migrations(connection: Connection) -> None:
    """Run the migrations that this database lacks."""
    # Alembic is large and slow to import, and nearly always there is nothing to migrate.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found
