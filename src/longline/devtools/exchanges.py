"""What a source asks for and is given, written down beside the chain."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, quote_plus

import orjson

from longline.config.auth import Auth
from longline.config.secrets import SecretRef
from longline.core.clock import Clock
from longline.core.errors import BudgetSpent, FetchError
from longline.core.model import Usage
from longline.http.chain import ClientIdentity
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware
from longline.http.transports.browser.page import BrowserPage
from longline.sources.base import Source


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request of a source, and what it was given: a page, or the error in its place.

    `requests` were really made for it, with redirects, retries and robots.txt; 0 when nobody had to
    be asked. `waited` seconds of its `seconds` went into the site's pace.
    """

    request: Request
    result: Page | FetchError
    at: float
    seconds: float
    requests: int = 0
    retries: int = 0
    waited: float = 0.0

    @property
    def status(self) -> int | None:
        """The status of the answer; None when there was none."""
        if isinstance(self.result, Page):
            return self.result.status
        return getattr(self.result, "status", None)

    @property
    def is_cached(self) -> bool:
        """Whether the answer was there already."""
        return isinstance(self.result, Page) and (self.result.is_cached or not self.requests)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        is_page = isinstance(self.result, Page)
        return {
            "method": self.request.method,
            "url": self.request.url,
            "status": self.status,
            "bytes": len(self.result.body) if isinstance(self.result, Page) else None,
            "seconds": round(self.seconds, 3),
            "waited": round(self.waited, 3),
            "requests": self.requests,
            "cached": self.is_cached,
            "problem": None if is_page else str(self.result),
        }


class Watching(Middleware):
    """Passes requests on and writes down what became of them.

    Args:
        inner: the chain.
        clock: what durations are measured by.
        most: so many requests may be made; those after them are refused. None is any number.
    """

    def __init__(self, inner: Middleware, clock: Clock, *, most: int | None = None) -> None:
        self._inner = inner
        self._clock = clock
        self.most = most
        self.exchanges: list[Exchange] = []
        self.is_spent = False

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if self.most is not None and sum(one.requests for one in self.exchanges) >= self.most:
            self.is_spent = True
            raise BudgetSpent(request.url, f"the budget of {self.most} requests")
        before = usage.requests, usage.retries, usage.waited
        started = self._clock.now()
        try:
            page = await self._inner(request, usage)
        except FetchError as error:
            self._note(request, error, started, before, usage)
            raise
        self._note(request, page, started, before, usage)
        return page

    def take(self) -> list[Exchange]:
        """Return what was written down, and begin anew."""
        taken, self.exchanges = self.exchanges, []
        return taken

    def _note(
        self,
        request: Request,
        result: Page | FetchError,
        started: float,
        before: tuple[int, int, float],
        usage: Usage,
    ) -> None:
        requests, retries, waited = before
        self.exchanges.append(
            Exchange(
                request,
                result,
                started,
                self._clock.now() - started,
                usage.requests - requests,
                usage.retries - retries,
                usage.waited - waited,
            )
        )


# ---------------- What an author is shown and keeps, without the secrets that a site may have

MASKED = "***"
_SHORTEST = 4  # characters; what is shorter stands in every other word, and is no secret


class Mask:
    """Replaces secrets, however they are written: plain, in an address, in JSON, in base 64."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for one in secrets if len(one) >= _SHORTEST for form in _forms(one)}
        # A longer one may hold a shorter one.
        self._forms = sorted(forms, key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for form in self._forms:
            text = text.replace(form, MASKED)
        return text

    def data(self, value: Any) -> Any:
        """Return plain data without secrets, names included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self._body(value)
        if isinstance(value, Mapping):
            return {self.data(name): self.data(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.data(one) for one in value)
        return value

    def exchange(self, one: Exchange) -> Exchange:
        """Return what was asked and answered without secrets."""
        if not self._forms:
            return one
        request = replace(one.request, url=self.text(one.request.url))
        return replace(one, request=request, result=self._result(one.result))

    def _result(self, result: Page | FetchError) -> Page | FetchError:
        if isinstance(result, FetchError):
            return type(result)(*self.data(result.args))  # as pickle rebuilds it
        said = {
            "url": self.text(result.url),
            "headers": self.data(result.headers),
            "body": self._body(result.body),
        }
        if isinstance(result, BrowserPage):
            return replace(result, **said, captured=self.data(result.captured))
        return replace(result, **said)

    def _body(self, body: bytes) -> bytes:
        for form in self._forms:
            body = body.replace(form.encode(), MASKED.encode())
        return body


def mask_of(source: type[Source], identity: ClientIdentity) -> Mask:
    """Return the mask for a run of a source: all secrets that it, or the job, refers to."""
    return Mask({one.read().get_secret_value() for one in _references(source, identity)})


def _references(source: type[Source], identity: ClientIdentity) -> Iterator[SecretRef]:
    yield from source.needs.secrets
    yield from _in_auth(identity.auth)
    hosts = identity.cookies.values() if isinstance(identity.cookies, Mapping) else ()
    yield from (one for host in hosts for one in host.values() if isinstance(one, SecretRef))


def _in_auth(auth: Auth | None) -> Iterator[SecretRef]:
    if auth is not None:
        yield from auth.references()


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield orjson.dumps(secret).decode()[1:-1]
    yield base64.b64encode(secret.encode()).decode()
