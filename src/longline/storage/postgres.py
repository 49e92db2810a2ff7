"""PostgreSQL as the database: a server that may become unavailable at any time."""

from __future__ import annotations

import secrets
from typing import Any

import orjson
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DataError, DBAPIError, OperationalError

from longline.core.errors import LonglineError, MissingExtra, StoreBusy, StoreFull, StoreUnreachable
from longline.core.redaction import redact_url
from longline.storage.bulk import as_json
from longline.storage.transactions import Backend, Fault

# ---------------- Errors in one sentence that says what to do

_DENIED = "42501"
_READ_ONLY = "25006"
STARTING = ("is starting up", "not yet accepting connections", "recovery mode", "is shutting down")


def explain_failure(message: str, state: str | None, url: URL) -> str:
    """Return the cause from the driver's message and SQLSTATE (None: not connected)."""
    user = url.username or "this user"
    place = f"{url.host or 'localhost'}:{url.port or 5432}"
    if state == _DENIED:
        return (
            f"user {user} may not create tables there; its owner grants that with "
            f"GRANT CREATE, USAGE ON SCHEMA public TO {user}"
        )
    if state == _READ_ONLY:
        return "the server is read-only, perhaps a standby"
    names = {"user": user, "place": place, "database": url.database}
    for words, sentence in _SENTENCES.items():
        if words.format(**names) in message:
            return sentence.format(**names)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[0] if lines else "the server gave no reason"


_SENTENCES = {  # a failed connection has no SQLSTATE, so the message decides
    "password authentication failed": "the server refuses the password of user {user}",
    'database "{database}" does not exist': (
        "the server has no database {database}; create it with createdb {database}"
    ),
    'role "{user}" does not exist': (
        "the server has no user {user}; create it with createuser {user}"
    ),
    "no password supplied": (
        "the server requires a password for user {user}; put it into the URL or ~/.pgpass"
    ),
    "no pg_hba.conf entry": (
        "the server does not allow user {user} from this machine; see its pg_hba.conf"
    ),
    "Connection refused": "nothing listens at {place}; is the server running?",
    "No such file or directory": "nothing listens at {place}; is the server running?",
    "timeout expired": "{place} did not answer in time",
    "timed out": "{place} did not answer in time",
    "resolve host": "the host of {place} is unknown",
    "Name or service not known": "the host of {place} is unknown",
    "too many clients": "the server has no free connection; raise its max_connections",
    "remaining connection slots": "the server has no free connection; raise its max_connections",
    **dict.fromkeys(STARTING, "the server is still starting up, or shutting down"),
}

# ---------------- The backend

DRIVERS = ("postgres", "postgresql", "postgresql+psycopg")
OLDEST = 13  # older versions are not maintained, and not tested here
_CONNECT_OPTIONS = {
    "application_name": "longline",
    "connect_timeout": 10,
    # A broken link sends nothing: after half a minute without an answer it is lost.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_CURSORS = "longline.cursors"
_SCHEMA_LOCK = int.from_bytes(b"longline")  # advisory lock for schema changes

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_DISK_FULL = "53100"
_LOCK_TIMEOUT = "55P03"
_CONFLICTS = {"40P01", "40001", "23505"}  # deadlock, serialization failure, unique violation
_GONE = {
    *("57P01", "57P02", "57P03", "57P05"),  # shut down, crashed, starting up, idle too long
    *("25P03", "53300"),  # idle too long in a transaction, too many connections
    *("08000", "08003", "08006", "08001", "08004"),  # the connection itself
}

# Transaction ids do not do: after a crash an id is given to another transaction.
_MARK = text(
    "INSERT INTO writers (name, word, until) "
    "SELECT :name, :word, extract(epoch FROM now()) + 86400 FROM pg_advisory_xact_lock(:key) "
    "WHERE pg_current_xact_id_if_assigned() IS NOT NULL "
    "ON CONFLICT (name) DO UPDATE SET word = excluded.word, until = excluded.until "
    "RETURNING word"
)
_PRUNE = text("DELETE FROM writers WHERE until < extract(epoch FROM now())")
# Our own transaction whose client is gone: the server has not noticed and holds its locks.
_TERMINATE = text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 "
    "AND ((CAST(classid AS bigint) << 32) | CAST(objid AS bigint)) = :key "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND pid <> pg_backend_pid()"
)
_LOCK = text("SELECT pg_advisory_xact_lock(:key)")
_LAST_MARK = text("SELECT word FROM writers WHERE name = :name")
_CHANGE_TOKEN = text("SELECT md5(string_agg(name || ' ' || word, ',' ORDER BY name)) FROM writers")


class PostgresBackend(Backend):
    """One database of a server, through psycopg."""

    def __init__(self, url: URL, timeout: float) -> None:
        """Raise StoreUnreachable if the URL names no database."""
        self._url = url.set(drivername="postgresql+psycopg")
        self.address = redact_url(self._url.render_as_string(hide_password=True))
        self.timeout = timeout
        self._key = secrets.randbits(63)  # identifies this writer
        self._name = f"{self._key:x}"
        self._has_pruned = False
        if not url.database:
            raise StoreUnreachable(self.address, "it names no database; use postgresql://host/name")

    def writer_engine(self) -> Engine:
        engine = self._engine(1, isolation_level="READ COMMITTED")
        milliseconds = max(1, int(self.timeout * 1000))

        @event.listens_for(engine, "connect")
        def connect(connection: Any, _record: Any) -> None:
            connection.autocommit = True
            connection.execute(f"SET lock_timeout = {milliseconds}")
            # Writes find their rows by an index. A cached plan from when the table was empty reads
            # the whole table until autovacuum has analyzed it, a minute later.
            connection.execute("SET enable_seqscan = off")
            # A process that is stopped or cut off must not keep its locks.
            connection.execute("SET idle_in_transaction_session_timeout = '60s'")
            connection.autocommit = False

        event.listen(engine, "before_cursor_execute", _replace_nul, retval=True)
        return engine

    def reader_engine(self, size: int) -> Engine:
        engine = self._engine(size, isolation_level="REPEATABLE READ")

        @event.listens_for(engine, "connect")
        def connect(connection: Any, _record: Any) -> None:
            connection.read_only = True

        event.listen(engine, "before_cursor_execute", _replace_nul, retval=True)
        event.listen(engine, "after_cursor_execute", _track_cursor)
        event.listen(engine, "reset", _close_cursors)
        return engine

    def lock_tables(self, connection: Connection) -> None:
        """Wait for other processes that migrate.

        Raises:
            StoreUnreachable: the server is too old.
        """
        found = connection.dialect.server_version_info or (0,)
        if int(found[0]) < OLDEST:
            version = ".".join(map(str, found))
            problem = f"PostgreSQL {version} is too old; {OLDEST} or newer is required"
            raise StoreUnreachable(self.address, problem)
        connection.execute(_LOCK, {"key": _SCHEMA_LOCK})

    def mark_commit(self, connection: Connection) -> str | None:
        if not self._has_pruned:
            connection.execute(_PRUNE)
            self._has_pruned = True
        marked: str | None = connection.scalar(
            _MARK, {"name": self._name, "key": self._key, "word": secrets.token_hex(8)}
        )
        return marked

    def was_committed(self, connection: Connection, mark: str) -> bool:
        connection.execute(_TERMINATE, {"key": self._key})
        connection.execute(_LOCK, {"key": self._key})
        return bool(connection.scalar(_LAST_MARK, {"name": self._name}) == mark)

    def change_token(self, connection: Connection) -> object:
        return connection.scalar(_CHANGE_TOKEN)

    def classify(self, error: DBAPIError) -> Fault:
        state = _state(error)
        if any(words in str(error.orig) for words in STARTING):
            return Fault.STARTING
        if state in _CONFLICTS:
            return Fault.CONFLICT
        # Without a SQLSTATE the server was not reached, or the connection broke.
        is_lost = isinstance(error, OperationalError) and state is None
        is_gone = is_lost or error.connection_invalidated or state in _GONE
        return Fault.GONE if is_gone else Fault.OTHER

    def translate(self, error: DBAPIError) -> LonglineError | DBAPIError:
        if isinstance(error, DataError):
            return error
        if _state(error) == _DISK_FULL:
            return StoreFull(self.address)
        if _state(error) == _LOCK_TIMEOUT:
            return StoreBusy(self.address, self.timeout)
        return StoreUnreachable(
            self.address, explain_failure(str(error.orig), _state(error), self._url)
        )

    def _engine(self, size: int, **options: Any) -> Engine:
        try:
            return create_engine(
                self._url,
                pool_size=size,
                max_overflow=0,
                paramstyle="format",  # by position, as bulk statements pass their values
                use_native_hstore=False,  # unused, and each connection would query for it
                json_serializer=as_json,
                json_deserializer=orjson.loads,
                connect_args={
                    name: value
                    for name, value in _CONNECT_OPTIONS.items()
                    if name not in self._url.query
                },
                **options,
            )
        except ImportError as error:
            raise MissingExtra("postgres", "PostgreSQL as the database") from error


def _track_cursor(connection: Connection, cursor: Any, *_: Any) -> None:
    """Remember a cursor whose rows are still on the server."""
    is_open = [one for one in connection.info.get(_CURSORS, ()) if not one.closed]
    connection.info[_CURSORS] = [*is_open, cursor] if hasattr(cursor, "scrollable") else is_open


def _close_cursors(_connection: Any, record: Any, _state: Any) -> None:
    """Close cursors that were not read to the end when the connection returns to the pool."""
    for cursor in record.info.pop(_CURSORS, ()):
        cursor.close()


def _replace_nul(
    _connection: Any, _cursor: Any, statement: str, values: Any, *_: Any
) -> tuple[str, Any]:
    """Replace NUL characters, which PostgreSQL cannot store in text, by U+FFFD."""
    is_many = isinstance(values, list)
    return statement, [_without_nul(row) for row in values] if is_many else _without_nul(values)


def _without_nul(row: Any) -> Any:
    if isinstance(row, tuple) and any(type(one) is str and "\x00" in one for one in row):
        return tuple(one.replace("\x00", "\ufffd") if isinstance(one, str) else one for one in row)
    return row


def _state(error: DBAPIError) -> str | None:
    state: str | None = getattr(error.orig, "sqlstate", None)
    return state
