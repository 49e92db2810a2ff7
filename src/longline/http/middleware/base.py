"""Link: one step of the request chain. Each wraps the next and is a file of its own."""

from __future__ import annotations

from typing import Protocol

from longline.core.model import Usage
from longline.http.messages import Page, Request


class Middleware(Protocol):
    """Takes a request, gives an answer; what it cost is added to the account."""

    async def __call__(self, request: Request, usage: Usage) -> Page:
        """Return the answer.

        Raises:
            FetchError: there is none; the error's kind says what may be done about it.
        """
