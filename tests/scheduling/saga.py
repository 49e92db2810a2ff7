"""A flow with effects outside of the database, and whether they are there once or not at all."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.scheduling.flows import SHOP, write

Files = dict[str, bytes]
"""The content of files by their names; that of a folder is empty."""

CHECK = "def look(given): return given['params']['ends'] == 'complete'\n"


def saga(
    folder: Path,
    hook: str,
    *,
    table: str | None = None,
    only: Collection[str] = (),
    pause: float = 0.0,
) -> Path:
    """Write a flow of 7 steps, which ends complete or compensated as its parameter says.

    Args:
        folder: where it is, and where its effects are.
        hook: the URL of its webhook.
        table: the address of a database for an export; by default, that is a file.
        only: the names of the steps to leave in; empty: all.
        pause: seconds that its commands take.
    """
    write(folder, "shop.py", SHOP)
    write(folder, "checks.py", CHECK)
    (folder / "effects").mkdir(exist_ok=True)
    target = {"url": hook, "secret": "env:HOOK_SECRET", "allow_private": True}
    second: dict[str, Any] = {"to": "second.jsonl", "source": "shop"}
    if table is not None:
        second = {"to": table, "table": "saga", "source": "shop"}
    # Commands that may be repeated: the name of the folder is that of the run.
    made, removed = [
        ["/bin/sh", "-c", f"echo begun; sleep {pause}; {program} effects/$1", "-", "{run}"]
        for program in ("mkdir -p", "rm -rf")
    ]
    steps: list[dict[str, Any]] = [
        {
            "name": "shop",
            "run": {"source": "shop.py", "set": {"price": "{params.price}"}},
            "undo": "restore",
        },
        {"name": "first", "export": {"to": "first.csv", "source": "shop"}, "undo": "restore"},
        {"name": "second", "export": second, "undo": "restore"},
        {"name": "new", "export": {"to": "{run}.csv", "source": "shop"}, "undo": "delete"},
        {"name": "apply", "command": made, "undo": {"command": removed}},
        {
            "name": "tell",
            "webhook": {**target, "data": {"action": "do"}},
            "undo": {"webhook": {**target, "data": {"action": "undo"}}},
        },
        {"name": "look", "check": "checks.py:look"},
    ]
    definition = {
        "flow": "saga",
        "params": {"ends": "complete", "price": 5},
        "on_failure": "compensate",
        "undo_retry": {"attempts": 5, "base": 1},
        "steps": [step for step in steps if not only or step["name"] in only],
    }
    path = folder / "saga.yaml"
    path.write_text(json.dumps(definition))
    return path


class Receiver:
    """What a receiver of webhooks does that drops repeated ids."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}

    def receive(self, message_id: str, body: bytes) -> None:
        action = json.loads(body)["data"]["action"]
        assert self.messages.setdefault(message_id, action) == action

    def applied(self, run: str) -> list[str]:
        """Return the actions for a run, once for each id."""
        return [action for key, action in self.messages.items() if key.startswith(f"{run}/")]


def file_problems(folder: Path, run: str, price: int, before: Files, state: str) -> list[str]:
    """Return what is wrong with the files after a run; `before` is what was there before it."""
    now = snapshot(folder)
    if state == "compensated" or "first.csv" not in now:
        return [f"not undone: {name}" for name in sorted(_differing(now, before))]
    new = {"first.csv", f"{run}.csv"}
    expected = {*before, *new, *(f"{name}.schema.json" for name in new), f"effects/{run}"}
    expected |= {name for name in now if name.startswith("second.jsonl")}
    others = {name for name in {*now} ^ expected if not name.endswith(".previous")}
    old = [name for name in new if f",{price}".encode() not in now.get(name, b"")]
    kept = [name for name in now if name.endswith(".previous")]
    problems = [f"unexpected or missing: {name}" for name in sorted(others)]
    problems += [f"not replaced: {name}" for name in sorted(old)]
    # The previous files of this run alone are kept, with their schemas.
    return problems + ([f"{len(kept)} files are kept"] if len(kept) > _MOST_KEPT else [])


_MOST_KEPT = 4


def snapshot(folder: Path) -> Files:
    """Return the files and folders that a saga may change."""
    patterns = ("*.csv*", "*.jsonl*", ".*.previous", "effects/*", ".*.part")
    paths = [path for pattern in patterns for path in folder.glob(pattern)]
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in paths
    }


def _differing(now: Files, before: Files) -> set[str]:
    return {name for name in {*now, *before} if now.get(name) != before.get(name)}
