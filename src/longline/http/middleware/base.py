"""Middleware: one step of the request chain, which wraps the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from longline.core.model import Usage
from longline.http.messages import Page, Request


class Middleware(Protocol):
    """Takes a request and returns a page; its cost is added to `usage`."""

    async def __call__(self, request: Request, usage: Usage) -> Page:
        """Return the response.

        Raises:
            FetchError: there is none; the error's kind decides what follows.
        """


MiddlewareFactory = Callable[[Middleware], Middleware]
"""Wraps the next middleware of the chain."""
