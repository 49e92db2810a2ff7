"""Asking an API: at its endpoints' own pace, and by the rules for odd answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from longline.clock import Clock
from longline.config.manifests.api_endpoints import Endpoint
from longline.config.manifests.api_handlers import Handler
from longline.errors import (
    FailureKind,
    FetchError,
    Postponed,
    Rejected,
    SkipItem,
    UnexpectedShape,
    bad_status,
)
from longline.fetching.messages import Page
from longline.model import Failure
from longline.resilience import pace as pacing
from longline.resilience.pace import Pace, PaceState
from longline.resilience.retry import RetryPolicy
from longline.sources.adapters.api_requests import Call
from longline.sources.adapters.api_rules import (
    MAY_PASS,
    reason_of,
    rule_for,
    seen_by_rules,
    wait_of,
)
from longline.sources.visit import Visit
from longline.threads import LARGE_BYTES, off_loop

_LONGEST_WAIT_IN_PLACE = RetryPolicy().longest_wait_in_place
_KINDS = {"retry": FailureKind.SERVER, "wait": FailureKind.OVERLOAD}
_LONGEST = 200  # characters of an error of the API that a sentence repeats


class Asker:
    """Asks for one run: its tasks share the pace of an endpoint, a rest, and a renewed proof."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints
        self._seen = {name: seen_by_rules(one) for name, one in endpoints.items()}
        self._paces = {n: Pace(one.rate, 1, 0.0) for n, one in endpoints.items() if one.rate}
        self._states: dict[str, PaceState] = {}
        self._tries: Counter[Hashable] = Counter()
        self._rests_until = 0.0
        self._proof = 0
        self._renewing = asyncio.Lock()

    async def ask(self, visit: Visit, name: str, call: Call) -> tuple[Page, Any]:
        """Return the answer to a request and its JSON.

        Raises:
            SkipItem: a rule says that there is nothing here.
            FetchError: the request failed, or a rule says so; Postponed when to try later.
            UnexpectedShape: the answer is not JSON.
        """
        endpoint, key = self._endpoints[name], (name, call.url, call.body)
        ended: int | None = None
        while True:
            with visit.account.waiting:
                await self._wait_for_turn(name, visit.clock)
            proof = self._proof
            page = await self._send(visit, name, call, ended)
            await off_loop(len(page.body), _parse, page)
            rule = rule_for(endpoint, page)
            if rule is None or rule.do == "accept":
                self._tries.pop(key, None)
                return page, _body(endpoint, page, visit, name)
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
        async with visit.account.waiting.to_enter(self._renewing):
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
            raise Postponed(page.url, now + seconds, reason, kind, is_rest)
        step = f"retried after {seconds:.3g} s"
        visit.account.failures.append(Failure(now, page.url, kind, reason, step, 0.0, page.status))
        visit.account.retries += 1
        with visit.account.waiting:
            await visit.clock.sleep(seconds)


def _parse(page: Page) -> None:
    """Parse a large body in the thread that this is called in; it is kept for later."""
    if len(page.body) >= LARGE_BYTES:
        with contextlib.suppress(UnexpectedShape):  # raised where the JSON is needed
            _ = page.json


def _body(endpoint: Endpoint, page: Page, visit: Visit, name: str) -> Any:
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
