"""The machine of a measurement, without names and paths."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from nginx import find_nginx

_PACKAGES = (
    "longline",
    "aiohttp",
    "selectolax",
    "pydantic",
    "SQLAlchemy",
    "celery",
    "redis",
    "psycopg",
    "Scrapy",
)


def describe() -> dict[str, Any]:
    """Return date, cores, load, and the versions of the software."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {
            "Python": platform.python_version(),
            **{name: found for name in _PACKAGES if (found := _version(name))},
            "SQLite": sqlite3.sqlite_version,
            "nginx": _nginx_version(),
        },
    }


def sentence(about: dict[str, Any]) -> str:
    """Return the description as a sentence for a document."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return (
        f"{about['date']}, {about['system']}, {about['cores']} cores, "
        f"load {about['load']} before the run; {versions}."
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _nginx_version() -> str:
    program = find_nginx()
    if program is None:
        return "none"
    output = subprocess.run([program, "-v"], capture_output=True, text=True, check=False).stderr
    found = re.search(r"nginx/([\d.]+)", output)
    return found[1] if found else "unknown"
