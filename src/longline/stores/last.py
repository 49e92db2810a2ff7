"""What a transaction does last: changes of rows that many processes want, gathered until then.

A row that every process adds to is locked from its change to the commit. At the end that is short,
and whoever holds such a row wants nothing else any more, so that no two wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

_KEY = "longline.last"


def begin(connection: Connection) -> None:
    """Gather from now on, from nothing: what an undone transaction has gathered is forgotten."""
    connection.info[_KEY] = {}


def do_last(
    connection: Connection, function: Callable[[Connection, list[Any]], None], argument: Any
) -> None:
    """Call `function(connection, arguments)` once, at the end, with those of all who asked."""
    gathered = connection.info.get(_KEY)
    if gathered is None:  # a transaction that nobody ends for us
        function(connection, [argument])
    else:
        gathered.setdefault(function, []).append(argument)


def end(connection: Connection) -> None:
    """Do what was gathered."""
    for function, arguments in connection.info.pop(_KEY).items():
        function(connection, arguments)
