"""Known security advisories of Redis and Valkey servers, and the versions that fix them."""

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
        fixes = sorted(parse_version(one) for one in self.fixed[product])
        if own[:2] > fixes[-1][:2]:
            return False  # a branch that began after the fix
        return not any(one[:2] == own[:2] and own >= one for one in fixes)


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
)


def advisories_for(product: str, version: str) -> list[Advisory]:
    """Return the known advisories that affect a version of "redis" or "valkey"."""
    return [one for one in ADVISORIES if one.affects(product, version)]


def parse_version(text: str) -> Version:
    """Return the numbers of a version; empty when it has none."""
    found = re.search(r"\d+(\.\d+)+", text)
    return tuple(int(one) for one in found[0].split(".")) if found else ()
