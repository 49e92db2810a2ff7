"""Scheme: one way to prove who we are. Some proofs end, and are obtained again."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable
from typing import Protocol

from longline.core.model import Usage
from longline.http.errors import AuthFailed
from longline.http.messages import Page, Request

_LONGEST = 200  # characters of what a server says that fit into a sentence


class Scheme(Protocol):
    """Proves who we are, to hosts that may know."""

    serial: int
    """The number of the proof in use; it changes when a new one was obtained."""

    async def sign(self, request: Request, usage: Usage) -> Request:
        """Return the request with the proof.

        Raises:
            FetchError: there is none to be had.
            UnknownSecret: the secret cannot be read.
        """

    def doubt(self, page: Page) -> str | None:
        """Return the sign in an answer that the proof has ended; None when there is none."""

    async def renew(self, serial: int, request: Request, usage: Usage) -> None:
        """Obtain a new proof in place of that number, unless somebody has done so already.

        Raises:
            FetchError: there is none to be had.
        """


class Lasting(Scheme):
    """A proof that does not end: what cannot be renewed is never doubted."""

    serial = 0

    def doubt(self, page: Page) -> str | None:
        del page
        return None

    async def renew(self, serial: int, request: Request, usage: Usage) -> None:
        """Do nothing: the secret is the proof."""


class Obtained(Scheme):
    """A proof that is asked for: once for all who wait, and never again once it was refused.

    A wrong password sent with every item would lock the account, so a refusal is remembered for
    the rest of the run. A server that is down is no refusal: that error is retried as any other.
    """

    def __init__(self) -> None:
        self.serial = 0
        self._lock = asyncio.Lock()
        self._refusal: tuple[str, str] | None = None

    @abstractmethod
    def is_at_hand(self) -> bool:
        """Return whether there is a proof that should still work."""

    @abstractmethod
    async def obtain(self, request: Request, usage: Usage) -> None:
        """Get a proof, on the way to this request.

        Raises:
            AuthFailed: it was refused.
        """

    async def have(self, request: Request, usage: Usage) -> None:
        """See that there is a proof."""
        if self.is_at_hand():
            return
        async with usage.waiting.to_enter(self._lock):
            if not self.is_at_hand():
                await self._try(request, usage)

    async def renew(self, serial: int, request: Request, usage: Usage) -> None:
        async with usage.waiting.to_enter(self._lock):
            if serial == self.serial:
                await self._try(request, usage)

    async def _try(self, request: Request, usage: Usage) -> None:
        if self._refusal is not None:
            raise AuthFailed(*self._refusal)
        try:
            await self.obtain(request, usage)
        except AuthFailed as error:
            self._refusal = (error.url, error.problem)
            usage.add_event("auth.failed", host=error.host, problem=error.problem)
            raise
        self.serial += 1


def cleaned(said: object, secrets: Iterable[str] = ()) -> str:
    """Return what a server said as one short line, without any of our secrets."""
    text = " ".join(str(said).split())
    for secret in secrets:
        text = text.replace(secret, "…")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
