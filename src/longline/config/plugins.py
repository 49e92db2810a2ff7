"""Plugins: what other packages add by entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Any

from longline.core.errors import BadSource

SOURCES = "longline.sources"
MIDDLEWARES = "longline.middlewares"
STAGES = "longline.stages"
ENRICHERS = "longline.enrichers"
EXPORTERS = "longline.exporters"
BACKENDS = "longline.backends"
LISTENERS = "longline.listeners"
SUBSCRIBERS = "longline.subscribers"
HEALTH = "longline.health"
ENTRY_POINTS = (
    *(SOURCES, MIDDLEWARES, STAGES, ENRICHERS, EXPORTERS, BACKENDS, LISTENERS, SUBSCRIBERS),
    HEALTH,
)
Check = Callable[[str, Any], object]
"""Receives the name and the loaded object; raises when it is not usable."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point of a package; `problem` says why it is not usable, None if it is."""

    group: str
    name: str
    target: str
    distribution: str
    version: str
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return asdict(self)


def list_plugins(checks: Mapping[str, Check] | None = None) -> list[Plugin]:
    """Load every plugin and return it, with its problem if it is broken.

    Args:
        checks: by group, the check of the loaded object.
    """
    seen: dict[tuple[str, str], str] = {}
    found = []
    for entry, distribution in _entries():
        check = (checks or {}).get(entry.group)
        name, version = _name_and_version(distribution)
        # The first one is used, as in `load_plugin`.
        first = seen.setdefault((entry.group, entry.name), name)
        is_first = first == name
        problem = _load_problem(entry, check) if is_first else f"{first} has this name already"
        found.append(Plugin(entry.group, entry.name, entry.value, name, version, problem))
    return sorted(
        found, key=lambda one: (ENTRY_POINTS.index(one.group), one.name, one.distribution)
    )


def plugin_names(group: str) -> list[str]:
    """Return the names of a group's plugins without loading them."""
    return sorted({entry.name for entry, _ in _entries() if entry.group == group})


def load_plugin(group: str, name: str) -> Any:
    """Return the object of a plugin; None when there is none of that name.

    Raises:
        BadSource: it cannot be loaded; the message names the package.
    """
    for entry, distribution in _entries():
        if (entry.group, entry.name) != (group, name):
            continue
        try:
            return entry.load()
        except (Exception, SystemExit) as error:
            package, version = _name_and_version(distribution)
            raise BadSource(
                name, f"the plugin of {package} {version} cannot be loaded: {_one_line(error)}"
            ) from error
    return None


def _entries() -> Iterator[tuple[EntryPoint, Distribution]]:
    seen: set[str] = set()
    for distribution in distributions():
        name, _ = _name_and_version(distribution)
        if name in seen:
            continue  # a second copy later on the path, which is never imported
        seen.add(name)
        entries: Iterable[EntryPoint] = ()
        with suppress(Exception):  # a broken file of another package
            entries = distribution.entry_points
        for entry in entries:
            if entry.group in ENTRY_POINTS:
                yield entry, distribution


def _name_and_version(distribution: Distribution) -> tuple[str, str]:
    try:
        metadata = distribution.metadata
        return metadata["Name"] or "?", metadata["Version"] or "?"
    except Exception:  # noqa: BLE001  # the same
        return "?", "?"


def _load_problem(entry: EntryPoint, check: Check | None) -> str | None:
    try:
        loaded = entry.load()
        if check is not None:
            check(entry.name, loaded)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # reported with the plugin
        return _one_line(error)
    return None


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
