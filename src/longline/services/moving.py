"""Moving a home from one database to another, with the small values it keeps beside it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import make_url

from longline.config.settings import Settings, prepare_home
from longline.core.errors import NoJobsYet, StoreUnreachable
from longline.core.redaction import redact_url
from longline.engine.owner import dead_among
from longline.services.needed import check_extra
from longline.services.record import RecordFile, alone_in
from longline.storage.copy import STOP, CellFile, Copied, Copying, Side
from longline.storage.database import Database, open_database
from longline.storage.errors import NotCopied

OWN = ("postgres", "sqlite")
"""Words for the databases that a home can have of its own."""

_PACE = "pace.sqlite"


@dataclass(frozen=True, slots=True)
class Move:
    """What is to be moved where; `source` None: the database that the home uses."""

    target: str
    source: str | None = None
    force: bool = False
    mend: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """What was moved, and whether the home uses the new database already.

    `is_behind`: somebody has written to the old one since it was copied.
    """

    copied: Copied
    is_in_use: bool
    is_behind: bool


async def move(
    settings: Settings, wish: Move, on_step: Callable[[str, int], object] = lambda _t, _n: None
) -> Moved:
    """Copy a database of a home to another one, all or nothing.

    A target called `postgres` is the server that `longline up` runs for the home, started if need
    be; one called `sqlite` is the file in the home. Unless the settings name a database, the home
    uses such a target from then on.

    Raises:
        NoJobsYet: there is no file to copy.
        NotCopied: it cannot be done, and why; nothing was.
        StoreError: one of the two databases does not work.
        ServiceError: the server of the home does not start.
    """
    prepare_home(settings)
    with ExitStack() as ends:
        # From here on nobody can start workers with the old address by `longline up`.
        file = RecordFile(settings.home.resolve())
        ends.enter_context(alone_in(file.home))
        source = _address(settings, file, wish.source or settings.database)
        _refuse_missing(source)
        if wish.source is None and not wish.force:
            _refuse_workers(settings, wish.target)
        target = _address(settings, file, wish.target)
        reading = ends.enter_context(closing(_opened(source, wish.source, target)))
        writing = ends.enter_context(closing(_opened(target, wish.target, target)))
        beside = settings.pace_file if wish.source is None else _beside(source, settings.pace_file)
        there = _beside(target, None)
        copying = Copying(
            Side(reading, _cells(beside), file_counts=settings.redis is None),
            Side(writing, _cells(there)),
            dead_among=dead_among,
            mend=wish.mend,
            on_step=on_step,
        )
        is_untouched = ends.enter_context(reading.watching())
        copied = await copying.run(force=wish.force)
        is_in_use = _is_taken_up(settings, file, wish.target, target)
        return Moved(copied, is_in_use, is_behind=not is_untouched())


def _opened(address: str, named: str | None, target: str) -> Database:
    """Open a database; one that the command names is not to be sought in the settings."""
    try:
        return open_database(address)
    except StoreUnreachable as error:
        if named is None or named in OWN or error.exit_code != NotCopied.exit_code:
            raise
        problem = f"{error.address} cannot be opened ({error.problem}); see that it is right"
        raise NotCopied(redact_url(target), problem) from error


def _refuse_workers(settings: Settings, target: str) -> None:
    """Refuse while workers of this home say that they are there."""
    if settings.broker is None or find_spec("redis") is None:
        return
    from longline.services.workers import is_over, presences  # noqa: PLC0415  # needs the extra

    found = presences(settings.broker) or {}
    names = [told.get("name", key) for key, told in sorted(found.items()) if not is_over(told)]
    if names:
        raise NotCopied(redact_url(target), f"{', '.join(names)} wait for work; {STOP}")


def _address(settings: Settings, file: RecordFile, named: str) -> str:
    if named == "postgres":
        return _own_server(file)
    if named == "sqlite":
        return f"sqlite:///{_written(settings.home / 'longline.sqlite')}"
    return named


def _own_server(file: RecordFile) -> str:
    check_extra("a PostgreSQL of this home")
    from longline.services.postgres import PostgresService  # noqa: PLC0415  # needs the extra

    file.mend()
    service = PostgresService(file)
    if not service.is_healthy():
        service.start()
    return service.url


def _is_taken_up(settings: Settings, file: RecordFile, named: str, address: str) -> bool:
    """Have the home use a database of its own from now on; False when the settings name one."""
    if named not in OWN or settings.database_url is not None:
        return False
    file.write(replace(file.read(), database_url=address if named == "postgres" else None))
    return True


def _refuse_missing(address: str) -> None:
    file = _file(address)
    if file is not None and not file.exists():
        raise NoJobsYet


def _beside(address: str, otherwise: Path | None) -> Path | None:
    file = _file(address)
    return otherwise if file is None else file.parent / _PACE


def _cells(path: Path | None) -> CellFile | None:
    return None if path is None else CellFile(path)


def _file(address: str) -> Path | None:
    """Return the file of an address of SQLite; None when it is another kind of address."""
    if not address.startswith("sqlite"):
        return None
    database = make_url(address).database
    return Path(database) if database else None


def _written(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3F")  # which mean something else there
