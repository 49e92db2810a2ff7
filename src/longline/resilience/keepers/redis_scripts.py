"""The Lua scripts of the Redis keepers: which files make up which, and how a number is written."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files

_PARTS = {
    "greet": ("born", "greet"),
    "reserve": ("born", "pace", "reserve"),
    "check": ("born", "pace", "check"),
    "penalise": ("born", "pace", "penalise"),
    "lateness": ("born", "pace", "lateness"),
    "give_back": ("born", "pace", "give_back"),
    "state": ("born", "pace", "state"),
    "cell": ("born", "cell"),
    "enter": ("born", "enter"),
    "stay": ("born", "stay"),
    "leave": ("born", "leave"),
}


@dataclass(frozen=True, slots=True)
class Script:
    """A program for Redis, and the name by which Redis knows it once it has seen it."""

    text: str
    digest: str


def read_scripts(clock: str | None = None) -> dict[str, Script]:
    """Return all scripts by name; `clock` is Lua to tell the time by, instead of Redis's own."""
    folder = files("longline.resilience.keepers") / "lua"
    clock = clock or (folder / "clock.lua").read_text("utf-8")
    return {
        name: _joined([clock, *((folder / f"{part}.lua").read_text("utf-8") for part in parts)])
        for name, parts in _PARTS.items()
    }


def exact(number: float) -> str:
    """Write a number as the scripts do: no digit is lost, and equal numbers are equal texts."""
    return f"{number:.17g}"


def _joined(parts: list[str]) -> Script:
    text = "\n".join(parts)
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
