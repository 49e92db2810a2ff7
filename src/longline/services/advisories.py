"""Known security advisories of the servers that `up` can start, and the versions that fix them.

The list is kept manually and is not complete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

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
