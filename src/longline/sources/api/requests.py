"""Requests of an API: build them from an endpoint, send them, apply the response handlers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

from longline.config.auth import QueryAuth
from longline.config.expressions import fill, fill_value, look_up, names_in
from longline.config.identity import merge_headers
from longline.config.secrets import Reach
from longline.core.clock import Clock
from longline.core.errors import Deferred, FailureKind, SkipItem, UnexpectedShape, bad_status
from longline.core.model import Failure
from longline.core.threads import LARGE_BYTES, off_loop
from longline.http.bodies import (
    JSON,
    form_body,
    form_pairs,
    graphql_body,
    json_body,
    scalar_text,
)
from longline.http.errors import Rejected
from longline.http.messages import Page, origin_of, without_userinfo
from longline.limits.rate_limit import BucketState, RateLimit, reserve_slot
from longline.limits.retry import DEFAULT_RETRY
from longline.sources.api.manifest import (
    RETRY_STATUSES,
    ApiManifest,
    Endpoint,
    Handler,
    delay_before_retry,
    handler_for,
    reason_for,
    statuses_to_return,
)
from longline.sources.api.pagination import PageParameters
from longline.sources.base import Visit

_MAX_WAIT_IN_PLACE = DEFAULT_RETRY.longest_wait_in_place
_FAILURE_KINDS = {"retry": FailureKind.SERVER, "wait": FailureKind.OVERLOAD}
_MAX_SHOWN = 200  # characters of an API's error that a message repeats


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request as built from an endpoint."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


class RequestBuilder:
    """Builds the requests of an API, and none to a host that the manifest does not name."""

    def __init__(self, manifest: ApiManifest, parameters: Mapping[str, Any]) -> None:
        self._endpoints = manifest.endpoints
        self._parameters = dict(parameters)
        self._reach = Reach(manifest.hosts)
        self._secret = manifest.auth.name if isinstance(manifest.auth, QueryAuth) else None
        self.base_url = fill(manifest.base_url, self._parameters).rstrip("/")

    def build(
        self, name: str, scope: Mapping[str, Any], extra: PageParameters | None = None
    ) -> ApiRequest:
        """Return the request of an endpoint.

        Raises:
            ValueError: a name in braces has no value.
            UnexpectedShape: the URL leads to a host that the manifest does not name.
        """
        endpoint, extra = self._endpoints[name], extra or PageParameters()
        scope = {**self._parameters, **scope}
        body, kind = _build_body(endpoint, scope, extra)
        usual = {"Accept": JSON, **({"Content-Type": kind} if kind else {})}
        own = {n: scalar_text(fill_value(v, scope)) for n, v in endpoint.headers.items()}
        url = self._build_url(endpoint, scope, extra)
        return ApiRequest(url, endpoint.effective_method, merge_headers(usual, own), body)

    def resolve(self, link: str, page_url: str) -> str:
        """Return the URL of a next page; raise UnexpectedShape if its host is not allowed."""
        url = urljoin(page_url, without_userinfo(link.strip()))
        self._check_host(url, page_url)
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        if self._secret and any(name == self._secret for name, _ in pairs):
            # The transport adds the secret; it must not become part of the stored URL.
            pairs = [(name, value) for name, value in pairs if name != self._secret]
            parts = parts._replace(query=urlencode(pairs))
        return urlunsplit(parts._replace(fragment=""))

    def _build_url(
        self, endpoint: Endpoint, scope: Mapping[str, Any], extra: PageParameters
    ) -> str:
        if extra.url is not None:
            return extra.url
        path = _fill_path(endpoint.path, scope)
        if path.startswith(("http://", "https://")):
            url = without_userinfo(path)
            self._check_host(url, self.base_url)
        else:
            url = f"{self.base_url}/{path.lstrip('/')}" if path else self.base_url
        query = urlencode(form_pairs({**fill_value(endpoint.query, scope), **extra.query}))
        return f"{url}{'&' if '?' in url else '?'}{query}" if query else url

    def _check_host(self, url: str, where: str) -> None:
        is_http = url.startswith(("http://", "https://"))
        if is_http and (origin_of(url) == origin_of(self.base_url) or self._reach.covers(url)):
            return
        host = origin_of(url)[1] or url
        raise UnexpectedShape(
            where,
            f"the next URL, {url[:200]!r}, is not on {origin_of(self.base_url)[1]}; to allow it, "
            f"write hosts: [{host}]",
        )


def _fill_path(text: str, scope: Mapping[str, Any]) -> str:
    """Return a path with percent-encoded values; raise ValueError if one changes the path."""
    for name in names_in(text):
        value = look_up(name, scope)
        if value is None or isinstance(value, Mapping | list) or str(value) == "":
            raise ValueError(f"{{{name}}} has no value for {text!r}")
        if str(value) in {".", ".."}:
            raise ValueError(f"{{{name}}} is {str(value)!r}, which changes the path {text!r}")
    return fill(text, scope, in_url=True)


def _build_body(
    endpoint: Endpoint, scope: Mapping[str, Any], extra: PageParameters
) -> tuple[bytes | None, str]:
    """Return the body and its content type."""
    if endpoint.graphql:
        variables = {**fill_value(endpoint.graphql.variables, scope), **extra.variables}
        made = graphql_body(endpoint.graphql.query, variables)
        return made.content, made.type
    if endpoint.body is None and not extra.body:
        return None, ""
    body = fill_value({} if endpoint.body is None else endpoint.body, scope)
    if extra.body:
        body = {**body, **extra.body}
    made = json_body(body) if endpoint.body_as == "json" else form_body(body)
    return made.content, made.type


class EndpointClient:
    """Sends the requests of one run; they share endpoint rates, pauses and renewed credentials."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints
        self._returned = {name: statuses_to_return(one.handlers) for name, one in endpoints.items()}
        self._rates = {n: RateLimit(one.rate, 1, 0.0) for n, one in endpoints.items() if one.rate}
        self._buckets: dict[str, BucketState] = {}
        self._attempts: Counter[Hashable] = Counter()
        self._paused_until = 0.0
        self._renewals = 0
        self._renewing = asyncio.Lock()

    async def request(self, visit: Visit, name: str, request: ApiRequest) -> tuple[Page, Any]:
        """Return the response to a request and its JSON.

        Raises:
            SkipItem: a handler says that there is nothing here.
            FetchError: the request failed, or a handler says so; Deferred when to try later.
            UnexpectedShape: the response is not JSON.
        """
        endpoint, key = self._endpoints[name], (name, request.url, request.body)
        expired: int | None = None
        while True:
            with visit.usage.waiting:
                await self._wait_for_slot(name, visit.clock)
            renewals = self._renewals
            page = await self._send_request(visit, name, request, expired)
            await off_loop(len(page.body), _parse_large, page)
            handler = handler_for(endpoint.handlers, page)
            if handler is None or handler.do == "accept":
                self._attempts.pop(key, None)
                return page, _checked_body(endpoint, page, visit, name)
            if handler.do != "refresh":
                await self._apply(handler, page, visit, key)
            elif expired is None:
                expired = renewals
            else:
                reason = f"{reason_for(handler, page)}, even after authenticating again"
                raise Rejected(page.url, reason)

    async def _send_request(
        self, visit: Visit, name: str, request: ApiRequest, expired: int | None
    ) -> Page:
        """Send a request; if the credentials of renewal `expired` were refused, with new ones."""
        fetch = partial(
            visit.fetch,
            request.url,
            method=request.method,
            headers=request.headers,
            body=request.body,
            accept=self._returned[name],
        )
        if expired is None:
            return await fetch()
        async with visit.usage.waiting.to_enter(self._renewing):
            # Concurrent requests with the old credentials renew them once.
            if expired == self._renewals:
                page = await fetch(renew=True)
                self._renewals += 1
                return page
        return await fetch()

    async def _wait_for_slot(self, name: str, clock: Clock) -> None:
        while (pause := self._paused_until - clock.now()) > 0:
            await clock.sleep(pause)
        if name in self._rates:
            self._buckets[name], slot = reserve_slot(
                self._rates[name], self._buckets.get(name), clock.now()
            )
            await clock.sleep(slot.wait)

    async def _apply(self, handler: Handler, page: Page, visit: Visit, key: Hashable) -> None:
        """Apply a handler; return when the request is to be sent again."""
        reason = reason_for(handler, page)
        if handler.do == "skip":
            raise SkipItem(f"{page.url}: {reason}")
        if handler.do == "fail":
            raise Rejected(page.url, reason)
        self._attempts[key] += 1
        attempts = self._attempts[key]
        if attempts >= handler.attempts:
            del self._attempts[key]
            if handler is RETRY_STATUSES:
                raise bad_status(page.url, page.status)
            reason = f"{reason}; gave up after {attempts} attempts"
            raise Rejected(page.url, reason, _FAILURE_KINDS[handler.do])
        now, kind = visit.clock.now(), _FAILURE_KINDS[handler.do]
        seconds = delay_before_retry(handler, page, attempts, now)
        is_pause = handler.do == "wait"
        if is_pause:
            self._paused_until = max(self._paused_until, now + seconds)
        if seconds > _MAX_WAIT_IN_PLACE:
            raise Deferred(page.url, now + seconds, reason, kind, is_pause)
        step = f"retried after {seconds:.3g} s"
        visit.usage.failures.append(Failure(now, page.url, kind, reason, step, 0.0, page.status))
        visit.usage.retries += 1
        with visit.usage.waiting:
            await visit.clock.sleep(seconds)


def _parse_large(page: Page) -> None:
    """Parse a large body in the calling thread; the page caches the result."""
    if len(page.body) >= LARGE_BYTES:
        with contextlib.suppress(UnexpectedShape):  # raised where the JSON is used
            _ = page.json


def _checked_body(endpoint: Endpoint, page: Page, visit: Visit, name: str) -> Any:
    body = page.json
    if (problem := page.text_problem) is not None:
        visit.note(name, problem)
        visit.warn(f"{name}: a response has bytes that are invalid in its encoding; see the notes")
    errors = body.get("errors") if endpoint.graphql and isinstance(body, Mapping) else None
    if not errors:
        return body
    first = errors[0] if isinstance(errors, list) else errors
    message = first.get("message") if isinstance(first, Mapping) else first
    text = " ".join(str(message or first).split())[:_MAX_SHOWN]
    more = len(errors) - 1 if isinstance(errors, list) else 0
    raise Rejected(page.url, f"GraphQL error {text!r}{f' and {more} more' if more else ''}")
