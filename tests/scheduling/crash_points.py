"""Points at which a process that performs a flow may die: each write, and each effect.

`instrument` makes the program call `CrashPoints.pass_by` before and after each write of a flow to
the database, each effect outside of it, and each step of keeping and restoring exports. The point
with the number `at` ends the process: `end` raises an exception that nothing handles, or kills it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

from longline.engine.webhooks import WebhookSender
from longline.export import previous
from longline.export.export import ExportRequest
from longline.scheduling import flow_steps
from longline.sources.command import lines_of
from longline.storage.records import Records
from longline.storage.scheduling.flows import FlowLease, Flows
from longline.storage.scheduling.launches import Launches

Patch = Callable[[Any, str, Any], None]
"""Replaces an attribute of an object."""
_FUNCTIONS: tuple[tuple[Any, str], ...] = (
    (flow_steps, "find_previous"),
    (flow_steps, "keep_previous"),
    (flow_steps, "export_records"),
    (flow_steps, "restore_previous"),
    (flow_steps, "delete_export"),
    (flow_steps, "drop_previous"),
    (previous._FileCopy, "keep"),
    (previous._FileCopy, "restore"),
    (previous._FileCopy, "delete"),
    (WebhookSender, "send_once"),
    (Records, "restore"),
    *((Launches, name) for name in ("place", "lease_one", "attach", "finish")),
    *((Flows, name) for name in ("lease", "change_state", "begin_step", "complete_step")),
    *((Flows, name) for name in ("fail_step", "begin_undo", "end_undo", "end_undoable")),
)


class Crash(BaseException):
    """The end of a process, as a kill would be; nothing handles it."""


def crash() -> NoReturn:
    raise Crash


class CrashPoints:
    """Counts the points that a process has passed, and ends it at one of them."""

    def __init__(self, at: int | None = None, end: Callable[[], NoReturn] = crash) -> None:
        self.at = at
        self.end = end
        self.names: list[str] = []

    def pass_by(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) - 1 == self.at:
            self.end()

    def instrument(self, patch: Patch) -> None:
        """Let the program pass by; undo it with the patches."""
        for owner, name in _FUNCTIONS:
            self.watch(owner, name, patch)
        patch(flow_steps, "lines_of", self._watched_lines(lines_of))

    def watch(self, owner: Any, name: str, patch: Patch) -> None:
        """Let the program pass by before and after each call of a function."""
        patch(owner, name, self._watched(name, getattr(owner, name)))

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                about = f"{name}{_subject(args)}"
                self.pass_by(f"before {about}")
                result = await function(*args, **kwargs)
                self.pass_by(f"after {about}")
                return result

            return awaited

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            about = f"{name}{_subject(args)}"
            self.pass_by(f"before {about}")
            result = function(*args, **kwargs)
            self.pass_by(f"after {about}")
            return result

        return called

    def _watched_lines(self, lines_of: Callable[..., Any]) -> Callable[..., Any]:
        async def watched(*args: Any, **kwargs: Any) -> Any:
            self.pass_by("before command")
            async for line in lines_of(*args, **kwargs):
                self.pass_by("in command")
                yield line
            self.pass_by("after command")

        return watched


def _subject(args: Sequence[Any]) -> str:
    """Return the step, state or destination that a call is about, after a space."""
    match args:
        case [_, FlowLease(), str(subject), *_]:  # a write of a flow: a step or a state
            return f" {subject}"
        case [ExportRequest(output=output), *_]:
            return f" {Path(output).name}"
    return ""
