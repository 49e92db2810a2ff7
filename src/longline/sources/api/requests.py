"""From an endpoint and what is known to a request: address, headers, body."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

import orjson

from longline.config.auth import QueryAuth
from longline.config.identity import merge_headers
from longline.config.manifests.api import ApiManifest, Endpoint, Handler, When
from longline.config.manifests.base import fill, names_in
from longline.config.manifests.json_paths import find
from longline.config.patterns import user_pattern
from longline.config.secrets import Reach
from longline.core.clock import Clock
from longline.core.errors import FailureKind, FetchError, SkipItem, UnexpectedShape, bad_status
from longline.core.model import Failure
from longline.core.threads import LARGE_BYTES, off_loop
from longline.http.errors import Rejected
from longline.http.headers import number, retry_after
from longline.http.messages import Page, origin_of, without_userinfo
from longline.http.middleware.responses import FIRST_BAD
from longline.limits import rate_limit as pacing
from longline.limits.errors import Deferred
from longline.limits.rate_limit import BucketState, RateLimit
from longline.limits.retry import RETRIED_STATUSES, RetryPolicy
from longline.sources.visit import Visit

# ---------------- Names in braces filled in: in addresses, queries, headers, and anywhere inside

_ALONE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.]*)\}")
_NO_STEP = frozenset({".", ".."})
_ABSENT = object()


def look_up(name: str, scope: Mapping[str, Any], default: Any = None) -> Any:
    """Return the value of a name; `a.b` looks into what is called a."""
    value: Any = scope
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def fill_address(text: str, scope: Mapping[str, Any]) -> str:
    """Return an address, or a part of one, with quoted values.

    Raises:
        ValueError: a value is missing, empty, or would lead elsewhere.
    """
    for name in names_in(text):
        value = look_up(name, scope, None)
        if value is None or isinstance(value, Mapping | list) or str(value) == "":
            message = f"{{{name}}} has no value for {text!r}"
            raise ValueError(message)
        if str(value) in _NO_STEP:
            message = f"{{{name}}} is {str(value)!r}, which leads elsewhere in {text!r}"
            raise ValueError(message)
    return fill(text, scope, in_address=True)


def fill_value(value: Any, scope: Mapping[str, Any]) -> Any:
    """Return a value with its names filled in; a text that is one name becomes its value.

    Raises:
        ValueError: there is no value of a name.
    """
    if isinstance(value, str):
        return _filled(value, scope)
    if isinstance(value, Mapping):
        return {name: fill_value(one, scope) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [fill_value(one, scope) for one in value]
    return value


def _filled(text: str, scope: Mapping[str, Any]) -> Any:
    alone = _ALONE.fullmatch(text)
    try:
        if alone is None:
            return fill(text, scope)
        found = look_up(alone[1], scope, _ABSENT)
    except KeyError as error:
        message = f"{{{error.args[0]}}} has no value for {text!r}"
        raise ValueError(message) from error
    if found is _ABSENT:
        message = f"{text} has no value"
        raise ValueError(message)
    return found


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


# ---------------- Which rule of an endpoint an answer falls under, and how long to wait by it

_USUAL_REST = 60.0  # seconds a source rests when neither the rule nor the site says how long
_AN_EPOCH = 1e9  # a reset of more than this is a moment and not a time
_BACKOFF = RetryPolicy()
MAY_PASS = Handler(when=When(status=tuple(RETRIED_STATUSES)), do="retry")
"""What the chain does about a failure that may pass; for statuses that the rules kept from it."""


def seen_by_rules(endpoint: Endpoint) -> frozenset[int]:
    """Return the statuses that the rules want to see, and those that are fine."""
    named = {status for rule in endpoint.handlers for status in rule.when.status}
    return frozenset(endpoint.accept) | frozenset(one for one in named if one >= FIRST_BAD)


def rule_for(endpoint: Endpoint, page: Page) -> Handler | None:
    """Return the rule that an answer falls under; None when it is fine.

    Raises:
        BadStatus: no rule fits, and the status says no for good.
    """
    for rule in endpoint.handlers:
        if _fits(rule.when, page):
            return rule
    if page.status < FIRST_BAD or page.status in endpoint.accept:
        return None
    if page.status in RETRIED_STATUSES:
        return MAY_PASS
    raise bad_status(page.url, page.status)


def wait_of(rule: Handler, page: Page, tries: int, now: float) -> float:
    """Return the seconds to wait after this many tries: as the rule, the site or habit says."""
    if rule.after is not None:
        return rule.after
    said = _said(page.headers.get(rule.after_header, "") if rule.after_header else "", now)
    if said is None:
        said = retry_after(page.headers, now)
    if rule.do == "wait":
        return _USUAL_REST if said is None else said
    return max(_BACKOFF.backoff(tries), said or 0.0)


def reason_of(rule: Handler, page: Page) -> str:
    """Return what a user reads about it."""
    if rule.reason:
        return rule.reason
    when = rule.when
    signs = [f"status {page.status}"] if when.status else []
    signs += [f"{when.body!r} holds"] if when.body else []
    signs += [f"header {name} is {page.headers.get(name)!r}" for name in when.header]
    return f"{', '.join(signs)}, which is to {rule.do}"


def is_true(value: Any) -> bool:
    """Return whether jmespath takes a value for true: zero is, empty things are not."""
    return not (value is None or value is False or (_is_empty(value)))


def _is_empty(value: Any) -> bool:
    return isinstance(value, str | list | Mapping) and not value


def _fits(when: When, page: Page) -> bool:
    if when.status and page.status not in when.status:
        return False
    if any(not _has(page.headers, name, text) for name, text in when.header.items()):
        return False
    return when.body is None or _holds(when.body, page)


def _has(headers: Mapping[str, str], name: str, text: str) -> bool:
    value = headers.get(name, headers.get(name.lower()))
    return value is not None and user_pattern(text, ignores_case=True).search(value) is not None


def _holds(condition: str, page: Page) -> bool:
    try:
        return is_true(find(condition, page.json))
    except (UnexpectedShape, ValueError):
        return False  # what is no JSON, or other JSON, does not meet a condition on it


def _said(text: str, now: float) -> float | None:
    seconds = number(text)
    if seconds is None:
        return None
    return max(0.0, seconds - now) if seconds > _AN_EPOCH else seconds


# ---------------- Asking an API: at its endpoints' own pace, and by the rules for odd answers

_LONGEST_WAIT_IN_PLACE = RetryPolicy().longest_wait_in_place
_KINDS = {"retry": FailureKind.SERVER, "wait": FailureKind.OVERLOAD}
_LONGEST = 200  # characters of an error of the API that a sentence repeats


class Asker:
    """Asks for one run: its tasks share the pace of an endpoint, a rest, and a renewed proof."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints
        self._seen = {name: seen_by_rules(one) for name, one in endpoints.items()}
        self._paces = {n: RateLimit(one.rate, 1, 0.0) for n, one in endpoints.items() if one.rate}
        self._states: dict[str, BucketState] = {}
        self._tries: Counter[Hashable] = Counter()
        self._rests_until = 0.0
        self._proof = 0
        self._renewing = asyncio.Lock()

    async def ask(self, visit: Visit, name: str, call: Call) -> tuple[Page, Any]:
        """Return the answer to a request and its JSON.

        Raises:
            SkipItem: a rule says that there is nothing here.
            FetchError: the request failed, or a rule says so; Deferred when to try later.
            UnexpectedShape: the answer is not JSON.
        """
        endpoint, key = self._endpoints[name], (name, call.url, call.body)
        ended: int | None = None
        while True:
            with visit.usage.waiting:
                await self._wait_for_turn(name, visit.clock)
            proof = self._proof
            page = await self._send(visit, name, call, ended)
            await off_loop(len(page.body), _parse, page)
            rule = rule_for(endpoint, page)
            if rule is None or rule.do == "accept":
                self._tries.pop(key, None)
                return page, _response_body(endpoint, page, visit, name)
            if rule.do != "refresh":
                await self._follow(rule, page, visit, key)
            elif ended is None:
                ended = proof
            else:
                raise Rejected(page.url, f"{reason_of(rule, page)}, and a new proof did not help")

    async def _send(self, visit: Visit, name: str, call: Call, ended: int | None) -> Page:
        """Send a request; after the proof number `ended` has, with a new one."""
        if ended is None:
            return await self._fetch(visit, name, call)
        async with visit.usage.waiting.to_enter(self._renewing):
            # Whoever asked with the old proof at the same time need not renew the new one.
            if ended == self._proof:
                page = await self._fetch(visit, name, call, renew=True)
                self._proof += 1
                return page
        return await self._fetch(visit, name, call)

    async def _fetch(self, visit: Visit, name: str, call: Call, **more: Any) -> Page:
        said: dict[str, Any] = {"method": call.method, "headers": call.headers, "body": call.body}
        return await visit.fetch(call.url, accept=self._seen[name], **said, **more)

    async def _wait_for_turn(self, name: str, clock: Clock) -> None:
        while (rest := self._rests_until - clock.now()) > 0:
            await clock.sleep(rest)
        if name in self._paces:
            self._states[name], slot = pacing.reserve(
                self._paces[name], self._states.get(name), clock.now()
            )
            await clock.sleep(slot.wait)

    async def _follow(self, rule: Handler, page: Page, visit: Visit, key: Hashable) -> None:
        """Do what a rule says, up to asking again."""
        reason = reason_of(rule, page)
        if rule.do == "skip":
            raise SkipItem(f"{page.url}: {reason}")
        if rule.do == "fail":
            raise Rejected(page.url, reason)
        self._tries[key] += 1
        if self._tries[key] >= rule.attempts:
            raise self._given_up(rule, page, key)
        await self._wait(rule, page, visit, self._tries[key])

    def _given_up(self, rule: Handler, page: Page, key: Hashable) -> FetchError:
        tries = self._tries.pop(key)
        if rule is MAY_PASS:
            return bad_status(page.url, page.status)
        reason = f"{reason_of(rule, page)}; asked {tries} times"
        return Rejected(page.url, reason, _KINDS[rule.do])

    async def _wait(self, rule: Handler, page: Page, visit: Visit, tries: int) -> None:
        now, kind, reason = visit.clock.now(), _KINDS[rule.do], reason_of(rule, page)
        seconds = wait_of(rule, page, tries, now)
        is_rest = rule.do == "wait"
        if is_rest:
            self._rests_until = max(self._rests_until, now + seconds)
        if seconds > _LONGEST_WAIT_IN_PLACE:
            raise Deferred(page.url, now + seconds, reason, kind, is_rest)
        step = f"retried after {seconds:.3g} s"
        visit.usage.failures.append(Failure(now, page.url, kind, reason, step, 0.0, page.status))
        visit.usage.retries += 1
        with visit.usage.waiting:
            await visit.clock.sleep(seconds)


def _parse(page: Page) -> None:
    """Parse a large body in the thread that this is called in; it is kept for later."""
    if len(page.body) >= LARGE_BYTES:
        with contextlib.suppress(UnexpectedShape):  # raised where the JSON is needed
            _ = page.json


def _response_body(endpoint: Endpoint, page: Page, visit: Visit, name: str) -> Any:
    body = page.json
    if (problem := page.text_problem) is not None:
        visit.note(name, problem)
        visit.warn(f"{name}: an answer has bytes that do not fit its encoding; see the notes")
    errors = body.get("errors") if endpoint.graphql and isinstance(body, Mapping) else None
    if not errors or endpoint.graphql is None:
        return body
    told = _told(errors)
    if not endpoint.graphql.keep_partial or body.get("data") is None:
        raise Rejected(page.url, f"GraphQL says {told}")
    visit.note(name, f"GraphQL gave a part of the data and says {told}")
    visit.warn(f"{name}: GraphQL gave only a part of the data and says {told}")
    return body


def _told(errors: Any) -> str:
    first = errors[0] if isinstance(errors, list) else errors
    message = first.get("message") if isinstance(first, Mapping) else first
    text = " ".join(str(message or first).split())[:_LONGEST]
    more = len(errors) - 1 if isinstance(errors, list) else 0
    return f"{text!r}{f' and {more} more' if more else ''}"
