"""PostgreSQL as the database: a server, which may go away for a while in the middle of anything."""

from __future__ import annotations

import secrets
from typing import Any

import orjson
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DataError, DBAPIError, OperationalError

from longline.core.errors import (
    LonglineError,
    MissingExtra,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnreachable,
)
from longline.core.redaction import redact_url
from longline.storage.bulk import as_json
from longline.storage.transactions import Backend, Disturbance

# ---------------- Why a PostgreSQL server did not do what was asked, in one sentence that says

_DENIED = "42501"
_READ_ONLY = "25006"
STARTING = ("is starting up", "not yet accepting connections", "recovery mode", "is shutting down")


def explained(told: str, state: str | None, url: URL) -> str:
    """Return why, from the driver's words and its five-letter state (None: not connected)."""
    user = url.username or "this user"
    place = f"{url.host or 'localhost'}:{url.port or 5432}"
    if state == _DENIED:
        return (
            f"user {user} has no right to make its tables there; its owner gives it with "
            f"GRANT CREATE, USAGE ON SCHEMA public TO {user}"
        )
    if state == _READ_ONLY:
        return "the server may only be read, it is a standby perhaps"
    names = {"user": user, "place": place, "database": url.database}
    for words, sentence in _SENTENCES.items():
        if words.format(**names) in told:
            return sentence.format(**names)
    return _first_line(told)


_SENTENCES = {  # connecting fails without a state, so the words of the server decide
    "password authentication failed": "the server refuses the password of user {user}",
    'database "{database}" does not exist': (
        "the server has no database {database}: createdb {database} makes it"
    ),
    'role "{user}" does not exist': "the server knows no user {user}: createuser {user} makes it",
    "no password supplied": (
        "the server wants a password of user {user}: write it into the address or into ~/.pgpass"
    ),
    "no pg_hba.conf entry": (
        "the server lets no user {user} in from this machine: its pg_hba.conf says who may"
    ),
    "Connection refused": "nothing answers at {place}, is the server running?",
    "No such file or directory": "nothing answers at {place}, is the server running?",
    "timeout expired": "{place} did not answer in time",
    "timed out": "{place} did not answer in time",
    "resolve host": "no machine is called like that: {place}",
    "Name or service not known": "no machine is called like that: {place}",
    "too many clients": "the server has no connection left: raise its max_connections",
    "remaining connection slots": "the server has no connection left: raise its max_connections",
    **dict.fromkeys(STARTING, "the server is still starting up, or shutting down"),
}


def _first_line(told: str) -> str:
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return lines[0] if lines else "the server said nothing"


DRIVERS = ("postgres", "postgresql", "postgresql+psycopg")
OLDEST = 13  # older ones are not looked after by anybody any more, nor tried by us
_HABITS = {
    "application_name": "longline",
    "connect_timeout": 10,
    # A cable that is cut says nothing: after half a minute without an answer it counts as lost.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_CURSORS = "longline.cursors"
_TABLES = int.from_bytes(b"longline")  # an advisory lock of whoever changes the tables

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_DISK_FULL = "53100"
_LOCK_TIMEOUT = "55P03"
_COLLISIONS = {"40P01", "40001", "23505"}  # deadlock, serialization failure, unique violation
_GONE = {
    *("57P01", "57P02", "57P03", "57P05"),  # shut down, crashed, starting up, idle too long
    *("25P03", "53300"),  # idle too long in a transaction, too many connections
    *("08000", "08003", "08006", "08001", "08004"),  # the connection itself
}

# Transactions have numbers, too, but after a crash a number is given to another one.
_MARK = text(
    "INSERT INTO writers (name, word, until) "
    "SELECT :name, :word, extract(epoch FROM now()) + 86400 FROM pg_advisory_xact_lock(:key) "
    "WHERE pg_current_xact_id_if_assigned() IS NOT NULL "
    "ON CONFLICT (name) DO UPDATE SET word = excluded.word, until = excluded.until "
    "RETURNING word"
)
_FORGET = text("DELETE FROM writers WHERE until < extract(epoch FROM now())")
# A transaction of ours whose client is gone: the server has not noticed, and keeps our locks.
_END = text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 "
    "AND ((CAST(classid AS bigint) << 32) | CAST(objid AS bigint)) = :key "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND pid <> pg_backend_pid()"
)
_WAIT = text("SELECT pg_advisory_xact_lock(:key)")
_ASK = text("SELECT word FROM writers WHERE name = :name")
_CHANGE = text("SELECT md5(string_agg(name || ' ' || word, ',' ORDER BY name)) FROM writers")


class PostgresBackend(Backend):
    """One database of a server, through psycopg."""

    def __init__(self, url: URL, patience: float) -> None:
        """Take an address.

        Raises:
            StoreUnreachable: it names no database.
        """
        self._url = url.set(drivername="postgresql+psycopg")
        self.address = redact_url(self._url.render_as_string(hide_password=True))
        self.patience = patience
        self._key = secrets.randbits(63)  # of the one who writes, among all who ever do
        self._name = f"{self._key:x}"
        self._is_tidy = False
        if not url.database:
            raise StoreUnreachable(self.address, "it names no database: postgresql://host/name")

    def writing(self) -> Engine:
        engine = self._engine(1, isolation_level="READ COMMITTED")
        milliseconds = max(1, int(self.patience * 1000))

        @event.listens_for(engine, "connect")
        def connect(connection: Any, _record: Any) -> None:
            connection.autocommit = True
            connection.execute(f"SET lock_timeout = {milliseconds}")
            # What is written is found by an index. A plan that was kept from when a table was empty
            # reads all of it, until the server has counted its rows again, a minute later.
            connection.execute("SET enable_seqscan = off")
            # A process that is stopped or cut off in the middle must not keep its locks for ever.
            connection.execute("SET idle_in_transaction_session_timeout = '60s'")
            connection.autocommit = False

        event.listen(engine, "before_cursor_execute", _clean, retval=True)
        return engine

    def reading(self, size: int) -> Engine:
        engine = self._engine(size, isolation_level="REPEATABLE READ")

        @event.listens_for(engine, "connect")
        def connect(connection: Any, _record: Any) -> None:
            connection.read_only = True

        event.listen(engine, "before_cursor_execute", _clean, retval=True)
        event.listen(engine, "after_cursor_execute", _remember)
        event.listen(engine, "reset", _close)
        return engine

    def lock_tables(self, connection: Connection) -> None:
        """Wait for others that migrate.

        Raises:
            StoreUnreachable: the server is too old.
        """
        found = connection.dialect.server_version_info or (0,)
        if int(found[0]) < OLDEST:
            version = ".".join(map(str, found))
            problem = f"its PostgreSQL {version} is too old, {OLDEST} or newer is needed"
            raise StoreUnreachable(self.address, problem)
        connection.execute(_WAIT, {"key": _TABLES})

    def mark(self, connection: Connection) -> str | None:
        if not self._is_tidy:  # what processes of long ago have left behind
            connection.execute(_FORGET)
            self._is_tidy = True
        marked: str | None = connection.scalar(
            _MARK, {"name": self._name, "key": self._key, "word": secrets.token_hex(8)}
        )
        return marked

    def was_committed(self, connection: Connection, mark: str) -> bool:
        connection.execute(_END, {"key": self._key})
        connection.execute(_WAIT, {"key": self._key})
        return bool(connection.scalar(_ASK, {"name": self._name}) == mark)

    def change(self, connection: Connection) -> object:
        return connection.scalar(_CHANGE)

    def trouble(self, error: DBAPIError) -> Disturbance:
        state = _state(error)
        if any(words in str(error.orig) for words in STARTING):
            return Disturbance.STARTING
        if state in _COLLISIONS:
            return Disturbance.COLLISION
        # Without a state it never came to the server, or was lost on the way there or back.
        is_lost = isinstance(error, OperationalError) and state is None
        is_gone = is_lost or error.connection_invalidated or state in _GONE
        return Disturbance.GONE if is_gone else Disturbance.OTHER

    def translated(self, error: DBAPIError) -> LonglineError | DBAPIError:
        if isinstance(error, DataError):
            return error
        return self._translated(error)

    def _translated(self, error: DBAPIError) -> StoreError:
        if _state(error) == _DISK_FULL:
            return StoreFull(self.address)
        if _state(error) == _LOCK_TIMEOUT:
            return StoreBusy(self.address, self.patience)
        return StoreUnreachable(self.address, explained(str(error.orig), _state(error), self._url))

    def _engine(self, size: int, **options: Any) -> Engine:
        try:
            return create_engine(
                self._url,
                pool_size=size,
                max_overflow=0,
                paramstyle="format",  # by position, as bulk statements hand their values over
                use_native_hstore=False,  # we have none, and each connection would look for it
                json_serializer=as_json,
                json_deserializer=orjson.loads,
                connect_args=self._habits(),
                **options,
            )
        except ImportError as error:
            raise MissingExtra("postgres", "PostgreSQL as the database") from error

    def _habits(self) -> dict[str, Any]:
        """Return how to connect, but for what the address itself says."""
        return {name: value for name, value in _HABITS.items() if name not in self._url.query}


def _remember(connection: Connection, cursor: Any, *_: Any) -> None:
    """Keep a cursor whose rows are still on the server."""
    is_open = [one for one in connection.info.get(_CURSORS, ()) if not one.closed]
    connection.info[_CURSORS] = [*is_open, cursor] if hasattr(cursor, "scrollable") else is_open


def _close(_connection: Any, record: Any, _state: Any) -> None:
    """Close what was not read to its end, when its connection goes back into the pool."""
    for cursor in record.info.pop(_CURSORS, ()):
        cursor.close()


def _clean(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> tuple[str, Any]:
    """Put U+FFFD for the sign of code 0, which no text of PostgreSQL can hold."""
    is_many = isinstance(values, list)
    return statement, [_readable(row) for row in values] if is_many else _readable(values)


def _readable(row: Any) -> Any:
    if isinstance(row, tuple) and any(type(one) is str and "\x00" in one for one in row):
        return tuple(one.replace("\x00", "\ufffd") if isinstance(one, str) else one for one in row)
    return row


def _state(error: DBAPIError) -> str | None:
    state: str | None = getattr(error.orig, "sqlstate", None)
    return state
