"""What an author is shown and keeps, without the secrets that a site may have echoed."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, quote_plus

import orjson

from longline.authoring.exchanges import Exchange
from longline.config.auth import Auth
from longline.config.secrets import SecretRef
from longline.errors import FetchError
from longline.fetching.chain import Manners
from longline.fetching.messages import Page
from longline.fetching.transports.browser_page import BrowserPage
from longline.sources.base import Source

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


def mask_of(source: type[Source], manners: Manners) -> Mask:
    """Return the mask for a run of a source: all secrets that it, or the job, refers to."""
    return Mask({one.read().get_secret_value() for one in _references(source, manners)})


def _references(source: type[Source], manners: Manners) -> Iterator[SecretRef]:
    yield from source.needs.secrets
    yield from _in_auth(manners.auth)
    hosts = manners.cookies.values() if isinstance(manners.cookies, Mapping) else ()
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
