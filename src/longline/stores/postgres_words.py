"""Why a PostgreSQL server did not do what was asked, in one sentence that says what to do."""

from __future__ import annotations

from sqlalchemy import URL

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
