"""From an endpoint and what is known to a request: address, headers, body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

import orjson

from longline.config.auth import QueryAuth
from longline.config.hosts import Reach
from longline.config.identity import merge_headers
from longline.config.manifests.api import ApiManifest
from longline.config.manifests.api_endpoints import Endpoint
from longline.config.manifests.templates import fill
from longline.errors import UnexpectedShape
from longline.fetching.messages import origin_of, without_userinfo
from longline.sources.adapters.api_templates import fill_address, fill_value

_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Call:
    """A request as an endpoint makes it."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What a page adds to its request: parameters, or the whole address."""

    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None


class Calls:
    """Makes the requests of an API, and none that leads away from it."""

    def __init__(self, manifest: ApiManifest, parameters: Mapping[str, Any]) -> None:
        self._endpoints = manifest.endpoints
        self._parameters = dict(parameters)
        self._reach = Reach(manifest.hosts)
        self._secret = manifest.auth.name if isinstance(manifest.auth, QueryAuth) else None
        self.base_url = fill(manifest.base_url, self._parameters).rstrip("/")

    def make(self, name: str, scope: Mapping[str, Any], turn: Turn | None = None) -> Call:
        """Return the request of an endpoint.

        Raises:
            ValueError: a name in braces has no value.
            UnexpectedShape: the address leads to a host that was not named.
        """
        endpoint, turn = self._endpoints[name], turn or Turn()
        scope = {**self._parameters, **scope}
        body, kind = _body(endpoint, scope, turn)
        usual = {"Accept": _JSON, **({"Content-Type": kind} if kind else {})}
        own = {name: fill_text(value, scope) for name, value in endpoint.headers.items()}
        headers = merge_headers(usual, own)
        return Call(self._address(endpoint, scope, turn), endpoint.verb, headers, body)

    def onward(self, address: str, page_url: str) -> str:
        """Return the address of a next page as it is asked for.

        Raises:
            UnexpectedShape: it leads to a host that was not named.
        """
        url = urljoin(page_url, without_userinfo(address.strip()))
        self._check(url, page_url)
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        if self._secret and any(name == self._secret for name, _ in pairs):
            # Only the transport adds the secret, and an API that repeats it must not undo that.
            pairs = [(name, value) for name, value in pairs if name != self._secret]
            parts = parts._replace(query=urlencode(pairs))
        return urlunsplit(parts._replace(fragment=""))

    def _address(self, endpoint: Endpoint, scope: Mapping[str, Any], turn: Turn) -> str:
        if turn.url is not None:
            return turn.url
        path = fill_address(endpoint.path, scope)
        if path.startswith(("http://", "https://")):
            url = without_userinfo(path)
            self._check(url, self.base_url)
        else:
            url = f"{self.base_url}/{path.lstrip('/')}" if path else self.base_url
        query = {**fill_value(endpoint.query, scope), **turn.query}
        written = urlencode([pair for name, value in query.items() for pair in _pairs(name, value)])
        return f"{url}{'&' if '?' in url else '?'}{written}" if written else url

    def _check(self, url: str, where: str) -> None:
        is_http = url.startswith(("http://", "https://"))
        if is_http and origin_of(url) == origin_of(self.base_url):
            return
        if is_http and self._reach.covers(url):
            return
        host = origin_of(url)[1] or url
        raise UnexpectedShape(
            where,
            f"the next address is {url[:200]!r}, away from {origin_of(self.base_url)[1]}; if that "
            f"is right, say hosts: [{host}]",
        )


def fill_text(text: str, scope: Mapping[str, Any]) -> str:
    """Return a text with its names filled in.

    Raises:
        ValueError: there is no value of a name.
    """
    return _plain(fill_value(text, scope))


def _body(endpoint: Endpoint, scope: Mapping[str, Any], turn: Turn) -> tuple[bytes | None, str]:
    if endpoint.graphql:
        variables = {**fill_value(endpoint.graphql.variables, scope), **turn.variables}
        sent = {"query": endpoint.graphql.query, "variables": variables}
        return orjson.dumps(sent), _JSON
    if endpoint.body is None and not turn.body:
        return None, ""
    body = fill_value({} if endpoint.body is None else endpoint.body, scope)
    if turn.body:
        body = {**body, **turn.body}
    if endpoint.body_as == "json":
        return orjson.dumps(body), _JSON
    pairs = [pair for name, value in body.items() for pair in _pairs(name, value)]
    return urlencode(pairs).encode(), _FORM


def _pairs(name: str, value: Any) -> Iterable[tuple[str, str]]:
    """Yield a parameter as it is sent: a list several times, what has no value not at all."""
    for one in value if isinstance(value, list | tuple) else [value]:
        if one is not None:
            yield name, _plain(one)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list | tuple):
        return orjson.dumps(value).decode()
    return "" if value is None else str(value)
