"""A loop that serves all jobs of a process, and passes its errors to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from longline.core.clock import Clock
from longline.storage.store import Store


@dataclass(slots=True, eq=False)
class LoopMember:
    """What a loop serves. `failure` gets the error of the loop, if there is one."""

    failure: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future(), init=False
    )

    async def wait_for_failure(self) -> None:
        """Wait until the loop fails; never returns otherwise.

        Raises:
            StoreError: the database cannot be used.
        """
        await asyncio.shield(self.failure)

    def fail(self, error: Exception) -> None:
        """Let `wait_for_failure` raise an error."""
        if not self.failure.done():
            self.failure.set_exception(error)


M = TypeVar("M", bound=LoopMember)


class ProcessLoop(Generic[M]):
    """Serves its members, and waits while there are none."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._members: set[M] = set()
        self._has_members = asyncio.Event()

    @contextlib.contextmanager
    def serving(self, member: M) -> Iterator[M]:
        """Serve a member while the block runs."""
        self._members.add(member)
        self._has_members.set()
        try:
            yield member
        finally:
            self._members.discard(member)
            if not self._members:
                self._has_members.clear()
            member.failure.cancel()
