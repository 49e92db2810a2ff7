"""AuthScheme: one kind of authentication. Some credentials expire and are renewed."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable
from typing import Protocol

from longline.core.model import Usage
from longline.core.redaction import SecretRedactor
from longline.http.errors import AuthFailed
from longline.http.messages import Page, Request

_LONGEST = 200  # characters of a server's message


class AuthScheme(Protocol):
    """Authenticates requests."""

    serial: int
    """The number of the credentials in use; it changes when they are renewed."""

    async def sign(self, request: Request, usage: Usage) -> Request:
        """Return the request with credentials.

        Raises:
            FetchError: they cannot be obtained.
            UnknownSecret: the secret cannot be read.
        """

    def expiry_reason(self, page: Page) -> str | None:
        """Return why a response shows that the credentials have expired; None if it does not."""

    async def renew(self, serial: int, request: Request, usage: Usage) -> None:
        """Renew the credentials with this number, unless another task has done so.

        Raises:
            FetchError: they cannot be obtained.
        """


class StaticScheme(AuthScheme):
    """Credentials that do not expire."""

    serial = 0

    def expiry_reason(self, page: Page) -> str | None:
        del page
        return None

    async def renew(self, serial: int, request: Request, usage: Usage) -> None:
        """Do nothing: the secret does not change."""


class ObtainedScheme(AuthScheme):
    """Credentials that are requested, once for all tasks, and never again after a refusal.

    A wrong password sent with every item would lock the account, so a refusal is remembered for the
    rest of the run. A server that is down is not a refusal: that error is retried as usual.
    """

    def __init__(self) -> None:
        self.serial = 0
        self._lock = asyncio.Lock()
        self._refusal: tuple[str, str] | None = None

    @abstractmethod
    def has_credentials(self) -> bool:
        """Return whether there are credentials that should still be valid."""

    @abstractmethod
    async def obtain(self, request: Request, usage: Usage) -> None:
        """Obtain credentials, before this request.

        Raises:
            AuthFailed: they were refused.
        """

    async def ensure(self, request: Request, usage: Usage) -> None:
        """Obtain credentials unless there are some."""
        if self.has_credentials():
            return
        async with usage.waiting.to_enter(self._lock):
            if not self.has_credentials():
                await self._obtain_once(request, usage)

    async def renew(self, serial: int, request: Request, usage: Usage) -> None:
        async with usage.waiting.to_enter(self._lock):
            if serial == self.serial:
                await self._obtain_once(request, usage)

    async def _obtain_once(self, request: Request, usage: Usage) -> None:
        if self._refusal is not None:
            raise AuthFailed(*self._refusal)
        try:
            await self.obtain(request, usage)
        except AuthFailed as error:
            self._refusal = (error.url, error.problem)
            usage.add_event("auth.failed", host=error.host, problem=error.problem)
            raise
        self.serial += 1


def one_line(message: object, secrets: Iterable[str] = ()) -> str:
    """Return a message of a server as one short line, without these secrets."""
    text = SecretRedactor(secrets).text(" ".join(str(message).split()))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
