"""Whether the packages that a cluster needs are installed."""

from __future__ import annotations

from importlib.util import find_spec

from longline.errors import MissingExtra

_PACKAGES = ("celery", "psycopg", "redis")


def check_extra(what: str) -> None:
    """See that a command can do its work.

    Raises:
        MissingExtra: it needs packages that are not there.
    """
    if any(find_spec(name) is None for name in _PACKAGES):
        raise MissingExtra("cluster", what)
