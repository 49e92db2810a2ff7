"""What `longline up` has started for a home: the addresses that stand in for missing settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from longline.errors import BadFile

FILE = "services.json"


@dataclass(frozen=True, slots=True)
class Services:
    """Addresses of servers that belong to a home; None: it has none of its own."""

    redis_url: str | None = None
    database_url: str | None = None


def read_services(home: Path) -> Services:
    """Return the servers of a home.

    Raises:
        BadFile: the file that names them is broken.
    """
    path = home / FILE
    try:
        found: Any = orjson.loads(path.read_bytes())
        return Services(found.get("redis_url"), found.get("database_url"))
    except FileNotFoundError:
        return Services()
    except (AttributeError, ValueError, OSError) as error:
        problem = "it does not say which servers run; `longline down` and `longline up` mend it"
        raise BadFile(str(path), problem) from error
