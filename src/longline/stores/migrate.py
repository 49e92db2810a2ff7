"""Versions of the tables: an old database is brought up to date, a newer one is left alone."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from longline.errors import StoreReadOnly, StoreTooNew
from longline.stores.backend import Backend

_KNOWN = ("0001", "0002", "0003", "0004", "0005")  # oldest first
NEWEST = _KNOWN[-1]
_SCRIPTS = Path(__file__).parent / "migrations"


def bring_up_to_date(engine: Engine, backend: Backend) -> None:
    """Run the migrations that are missing, all in one transaction.

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
        try:
            _upgrade(connection)
        except DBAPIError as error:
            if found is None or not isinstance(backend.translated(error), StoreReadOnly):
                raise
            problem = "it has to be brought up to date: an older longline wrote it"
            raise StoreReadOnly(backend.address, problem) from error


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def _upgrade(connection: Connection) -> None:
    # Alembic is slow to import, and nearly always there is nothing to migrate.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
