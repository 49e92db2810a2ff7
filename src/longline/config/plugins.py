"""What other packages add to longline by entry points: found, and loaded with care."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Any

from longline.core.errors import BadSource

SOURCES = "longline.sources"
GROUPS = (SOURCES, "longline.transports", "longline.stages", "longline.exporters")
Check = Callable[[str, Any], object]
"""Told the name and what it stands for; raises when that cannot be used."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One thing that a package adds; `problem` says why it cannot be used, None that it can."""

    group: str
    name: str
    target: str
    distribution: str
    version: str
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return asdict(self)


def found_plugins(checks: Mapping[str, Check] | None = None) -> list[Plugin]:
    """Load every plugin and say how it fared; what is broken breaks nothing else.

    Args:
        checks: by group, what must be true of the things that plugins stand for.
    """
    seen: dict[tuple[str, str], str] = {}
    found = []
    for entry, distribution in _entries():
        check = (checks or {}).get(entry.group)
        name, version = _known_as(distribution)
        # The first one counts, as it does when it is asked for by name.
        first = seen.setdefault((entry.group, entry.name), name)
        problem = _problem(entry, check) if first == name else f"{first} has this name already"
        found.append(Plugin(entry.group, entry.name, entry.value, name, version, problem))
    return sorted(found, key=lambda one: (GROUPS.index(one.group), one.name, one.distribution))


def plugin_names(group: str) -> list[str]:
    """Return what the plugins of a group are called; none of them is loaded."""
    return sorted({entry.name for entry, _ in _entries() if entry.group == group})


def load_plugin(group: str, name: str) -> Any:
    """Return what a plugin stands for; None when there is none of that name.

    Raises:
        BadSource: it is broken; says which package it came from.
    """
    for entry, distribution in _entries():
        if (entry.group, entry.name) != (group, name):
            continue
        try:
            return entry.load()
        except (Exception, SystemExit) as error:
            package, version = _known_as(distribution)
            raise BadSource(
                name, f"the plugin of {package} {version} is broken: {_told(error)}"
            ) from error
    return None


def _entries() -> Iterator[tuple[EntryPoint, Distribution]]:
    met: set[str] = set()
    for distribution in distributions():
        name, _ = _known_as(distribution)
        if name in met:
            continue  # a second copy further down the path, which nothing is imported from
        met.add(name)
        for entry in _entries_of(distribution):
            if entry.group in GROUPS:
                yield entry, distribution


def _entries_of(distribution: Distribution) -> list[EntryPoint]:
    try:
        return list(distribution.entry_points)
    except Exception:  # noqa: BLE001  # somebody else's broken file is no reason to stop
        return []


def _known_as(distribution: Distribution) -> tuple[str, str]:
    try:
        said = distribution.metadata
        return said["Name"] or "?", said["Version"] or "?"
    except Exception:  # noqa: BLE001  # the same
        return "?", "?"


def _problem(entry: EntryPoint, check: Check | None) -> str | None:
    try:
        loaded = entry.load()
        if check is not None:
            check(entry.name, loaded)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # it is reported, and the rest goes on
        return _told(error)
    return None


def _told(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
