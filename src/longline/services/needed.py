"""What a home needs: whether it has a cluster, and whether the packages for one are installed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import make_url

from longline.config.settings import SERVICES_FILE, Settings
from longline.core.errors import MissingExtra
from longline.core.redaction import redact_url
from longline.core.sqlite_files import undecodable_is_damage
from longline.services.base import Part

_PACKAGES = ("celery", "psycopg", "redis")


def check_extra(what: str) -> None:
    """See that a command can do its work.

    Raises:
        MissingExtra: it needs packages that are not there.
    """
    if any(find_spec(name) is None for name in _PACKAGES):
        raise MissingExtra("cluster", what)


def has_cluster(settings: Settings) -> bool:
    """Return whether a home has, or once had, more than the processes that run its jobs.

    A home that `longline up` was never run in, whose settings name no Redis and no broker and
    whose jobs run locally, needs none: that Redis is not there is not a fault.
    """
    return (
        settings.engine == "celery"
        or settings.redis_url is not None
        or settings.broker_url is not None
        or (settings.home / SERVICES_FILE).exists()
    )


def sqlite_part(settings: Settings) -> Part | None:
    """Return the database file of a home as a part; None when its database is a server."""
    if not settings.database.startswith("sqlite"):
        return None
    address = redact_url(settings.database)
    file = Path(make_url(settings.database).database or "")
    if not file.exists():
        return Part(
            "sqlite", is_healthy=True, is_ours=True, address=address, note="no job was run yet"
        )
    problem = _sqlite_problem(file)
    return Part("sqlite", is_healthy=problem is None, is_ours=True, address=address, note=problem)


def _sqlite_problem(file: Path) -> str | None:
    """Return why a database file cannot be read; None when it can."""
    try:
        address = f"{file.resolve().as_uri()}?mode=ro"
        with undecodable_is_damage(), closing(sqlite3.connect(address, uri=True)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        return f"{file} cannot be read: {error}"
    return None
