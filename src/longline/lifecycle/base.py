"""What a service is to those who start and stop it, and how a part of the cluster is described."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

Told = Callable[[str, str], None]
"""Is given the name of a part and what happens to it, as it happens."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a cluster as it is now; None is what nobody knows.

    `is_ours` says that `longline up` has started it and `longline down` will stop it; `since` is in
    seconds since the epoch; `doing` is what a worker says of itself.
    """

    name: str
    is_healthy: bool
    is_ours: bool
    address: str
    since: float | None = None
    pid: int | None = None
    port: int | None = None
    version: str | None = None
    memory_bytes: int | None = None
    log: str | None = None
    doing: dict[str, str] | None = None
    note: str | None = None


class Service(Protocol):
    """One process, with its children, that a home may have."""

    name: str

    def is_healthy(self) -> bool:
        """Say whether it runs, is ours, and answers."""

    def start(self) -> None:
        """Start it, in place of what is left of an earlier one; return when it answers.

        Raises:
            StartFailed: it does not.
        """

    def stop(self) -> None:
        """Stop it, if it is ours; return when it is gone.

        Raises:
            StopFailed: it stays.
        """

    def describe(self) -> Part:
        """Return what there is to say about it."""
