"""Session middleware: give each request its session, and a new one when that has ended."""

from __future__ import annotations

from dataclasses import replace

from longline.core.errors import Blocked, FetchError, NotBefore
from longline.core.model import Usage
from longline.http.errors import SessionEnded
from longline.http.messages import Middleware, Page, Request
from longline.http.proxies.sessions import Session, SessionPool

_MOST_SESSIONS = 5
"""Sessions that one request tries."""
_REFUSALS = frozenset({401, 403, 429})


class SessionMiddleware(Middleware):
    """Takes a session for a request, and ends it after a ban or repeated errors.

    It is outside redirects, so all hops of a request are in one session, and inside retries, so
    that another attempt can have another one. When the proxy of a session fails or is banned, the
    request is sent in a new session.
    """

    def __init__(self, inner: Middleware, sessions: SessionPool) -> None:
        self._inner = inner
        self._sessions = sessions

    async def __call__(self, request: Request, usage: Usage) -> Page:
        for number in range(1, _MOST_SESSIONS + 1):
            session = self._sessions.take(request.domain, request.scope, request.session)
            try:
                return await self._send(request, usage, session)
            except SessionEnded:
                if number == _MOST_SESSIONS:
                    raise
            finally:
                self._sessions.release(session)
        raise AssertionError  # the loop returns or raises

    async def _send(self, request: Request, usage: Usage, session: Session) -> Page:
        try:
            page = await self._inner(replace(request, session=session.name), usage)
        except SessionEnded:
            session.has_ended = True
            raise
        except FetchError as error:
            if isinstance(error, Blocked) or isinstance(error.__cause__, Blocked):
                session.has_ended = True
            elif not isinstance(error, NotBefore):  # then nothing was sent
                self._sessions.record(session, has_failed=True)
            raise
        self._sessions.record(session, has_failed=page.status in _REFUSALS)
        return page
