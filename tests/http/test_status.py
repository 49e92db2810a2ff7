"""The status that is kept for an item is that of its own request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longline.core.errors import ConnectFailed, FetchError
from longline.core.model import Usage
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.retry import RetryMiddleware
from longline.http.robots import RobotsMiddleware
from longline.limits.retry import RetryHandler
from longline.orchestrator import Orchestrator
from longline.storage.queue.failures import FailureQuery
from tests.virtual import VirtualClock

SITE = "https://shop.test"


class Web(Middleware):
    """Answers some paths with a status, and refuses the connection for all others."""

    def __init__(self, **statuses: int) -> None:
        self._statuses = {f"/{name.replace('_', '.')}": code for name, code in statuses.items()}

    async def __call__(self, request: Request, usage: Usage) -> Page:
        usage.requests += 1
        status = self._statuses.get(request.url.removeprefix(SITE))
        if status is None:
            raise ConnectFailed(request.url, "refused")
        usage.status = status
        return Page(request.url, status, {}, b"")


@pytest.mark.parametrize("robots_txt", [404, 200, 503])
async def test_the_status_of_robots_txt_is_not_that_of_a_request(
    robots_txt: int, clock: VirtualClock
) -> None:
    usage = Usage()

    with pytest.raises(FetchError):
        await RobotsMiddleware(Web(robots_txt=robots_txt), clock)(Request(f"{SITE}/p/1"), usage)

    assert usage.status is None


async def test_the_status_of_an_earlier_request_is_not_that_of_a_later_one(
    clock: VirtualClock,
) -> None:
    usage = Usage()
    middleware = RetryMiddleware(Web(list=200), RetryHandler(1, clock=clock, jitter=0.0), clock)
    await middleware(Request(f"{SITE}/list"), usage)
    before = usage.status

    with pytest.raises(FetchError):
        await middleware(Request(f"{SITE}/p/1"), usage)

    assert (before, usage.status) == (200, None)


async def test_failures_show_no_status_for_an_item_without_an_answer(
    clock: VirtualClock, tmp_path: Path
) -> None:
    spec: dict[str, Any] = {"home": tmp_path, "clock": clock, "rate": "unlimited"}
    web = Web(robots_txt=404)
    options = {"site": SITE, "count": 1}
    async with Orchestrator(
        "tests.sample_sources:PageSource", options, transport=web, **spec
    ) as orchestrator:
        report = await orchestrator.execute()
        items = await orchestrator.store.failures.failed_items(FailureQuery(report.job))

    assert [one.status for one in items] == [None]
    assert {attempt["status"] for one in items for attempt in one.attempts} == {None}
