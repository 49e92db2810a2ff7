"""Copy the database of a home to another one, with the limits in its pace file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import make_url

from longline.config.settings import Settings, prepare_home
from longline.core.errors import NoJobsYet, NotCopied, StoreUnreachable
from longline.core.redaction import redact_url
from longline.engine.owner import dead_among
from longline.services.processes import StateFile, check_extra, lifecycle_lock
from longline.storage.copy import STOP, CopyEnd, CopyResult, DatabaseCopy, SharedValuesFile
from longline.storage.database import Database, open_database

OWN_DATABASES = ("postgres", "sqlite")
"""Names of the databases that longline manages in a home."""
_PACE_FILE = "pace.sqlite"


@dataclass(frozen=True, slots=True)
class CopiedHome:
    """What was copied, and whether the home now uses the copy.

    `is_behind`: the source was written to during the copy.
    """

    copied: CopyResult
    is_in_use: bool
    is_behind: bool


async def copy_home(
    settings: Settings,
    target: str,
    source: str | None = None,
    *,
    force: bool = False,
    on_step: Callable[[str, int], object] = lambda _table, _rows: None,
) -> CopiedHome:
    """Copy the database of a home to an empty one, all or nothing.

    Args:
        settings: those of the home.
        target: an address; `postgres` for the server that `longline up` runs, which is started if
            needed; `sqlite` for the file in the home. Unless the settings name a database, the
            home uses `postgres` or `sqlite` from then on.
        source: the database to copy; None for that of the home.
        force: copy although jobs are running.
        on_step: called with each table and its number of rows.

    Raises:
        NoJobsYet: there is no file to copy.
        NotCopied: nothing was copied, and why.
        StoreError: one of the databases cannot be used.
        ServiceError: the server of the home does not start.
    """
    prepare_home(settings)
    with ExitStack() as stack:
        # From here on, `longline up` cannot start workers with the old address.
        file = StateFile(settings.home.resolve())
        stack.enter_context(lifecycle_lock(file.home))
        source_address = _address(settings, file, source or settings.database)
        source_file = _sqlite_file(source_address)
        if source_file is not None and not source_file.exists():
            raise NoJobsYet
        if source is None and not force:
            _refuse_workers(settings, target)
        target_address = _address(settings, file, target)
        reading = stack.enter_context(closing(_open(source_address, source, target_address)))
        writing = stack.enter_context(closing(_open(target_address, target, target_address)))
        if source is not None and source_file is not None:
            cells = source_file.parent / _PACE_FILE
        else:
            cells = settings.pace_file
        target_file = _sqlite_file(target_address)
        copying = DatabaseCopy(
            CopyEnd(reading, SharedValuesFile(cells), file_counts=settings.redis is None),
            CopyEnd(
                writing, SharedValuesFile(target_file.parent / _PACE_FILE) if target_file else None
            ),
            dead_among=dead_among,
            on_step=on_step,
        )
        is_unchanged = stack.enter_context(reading.watch_commits())
        copied = await copying.run(force=force)
        is_in_use = target in OWN_DATABASES and settings.database_url is None
        if is_in_use:
            own = target_address if target == "postgres" else None
            file.write(replace(file.read(), database_url=own))
        return CopiedHome(copied, is_in_use, is_behind=not is_unchanged())


def _open(address: str, named: str | None, target: str) -> Database:
    """Open a database; errors of one that the command names do not refer to the settings."""
    try:
        return open_database(address)
    except StoreUnreachable as error:
        if named is None or named in OWN_DATABASES or error.exit_code != NotCopied.exit_code:
            raise
        problem = f"{error.address} cannot be opened ({error.problem}); check its address"
        raise NotCopied(redact_url(target), problem) from error


def _refuse_workers(settings: Settings, target: str) -> None:
    """Refuse to copy while workers of this home are registered."""
    if settings.broker is None or find_spec("redis") is None:
        return
    from longline.services.cluster import is_dead, registered_workers  # noqa: PLC0415  # an extra

    found = registered_workers(settings.broker) or {}
    names = [one.get("name", key) for key, one in sorted(found.items()) if not is_dead(one)]
    if names:
        problem = f"workers are running ({', '.join(names)}); {STOP}"
        raise NotCopied(redact_url(target), problem)


def _address(settings: Settings, file: StateFile, named: str) -> str:
    if named == "postgres":
        return _own_server(file)
    if named == "sqlite":
        path = str(settings.home / "longline.sqlite")
        return f"sqlite:///{path.replace('%', '%25').replace('?', '%3F')}"
    return named


def _own_server(file: StateFile) -> str:
    check_extra("PostgreSQL in this home")
    from longline.services.postgres import PostgresService  # noqa: PLC0415  # needs the extra

    file.discard_if_broken()
    service = PostgresService(file)
    if not service.is_healthy():
        service.start()
    return service.url


def _sqlite_file(address: str) -> Path | None:
    """Return the file of a SQLite address; None for other databases."""
    if not address.startswith("sqlite"):
        return None
    database = make_url(address).database
    return Path(database) if database else None
