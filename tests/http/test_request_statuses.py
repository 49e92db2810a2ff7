"""The status that is kept for an item is that of its own request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longline.core.errors import ConnectFailed, FetchError
from longline.core.model import Account
from longline.http.messages import Page, Request
from longline.http.middleware.base import Link
from longline.http.middleware.retry import Retrying
from longline.http.middleware.robots import Robots
from longline.limits.retry import RetryHandler
from longline.orchestrator import Orchestrator
from longline.storage.queue.failures import LedgerQuery
from tests.virtual import VirtualClock

SITE = "https://shop.test"


class Web(Link):
    """Answers some paths with a status, and refuses the connection for all others."""

    def __init__(self, **statuses: int) -> None:
        self._statuses = {f"/{name.replace('_', '.')}": code for name, code in statuses.items()}

    async def __call__(self, request: Request, account: Account) -> Page:
        account.requests += 1
        status = self._statuses.get(request.url.removeprefix(SITE))
        if status is None:
            raise ConnectFailed(request.url, "refused")
        account.status = status
        return Page(request.url, status, {}, b"")


@pytest.mark.parametrize("robots_txt", [404, 200, 503])
async def test_the_status_of_robots_txt_is_not_that_of_a_request(
    robots_txt: int, clock: VirtualClock
) -> None:
    account = Account()

    with pytest.raises(FetchError):
        await Robots(Web(robots_txt=robots_txt), clock)(Request(f"{SITE}/p/1"), account)

    assert account.status is None


async def test_the_status_of_an_earlier_request_is_not_that_of_a_later_one(
    clock: VirtualClock,
) -> None:
    account = Account()
    link = Retrying(Web(list=200), RetryHandler(1, clock=clock), clock)
    await link(Request(f"{SITE}/list"), account)
    before = account.status

    with pytest.raises(FetchError):
        await link(Request(f"{SITE}/p/1"), account)

    assert (before, account.status) == (200, None)


async def test_failures_show_no_status_for_an_item_without_an_answer(
    clock: VirtualClock, tmp_path: Path
) -> None:
    spec: dict[str, Any] = {"home": tmp_path, "clock": clock, "rate": "unlimited"}
    web = Web(robots_txt=404)
    options = {"site": SITE, "count": 1}
    async with Orchestrator("tests.little:Little", options, transport=web, **spec) as orchestrator:
        report = await orchestrator.execute()
        items = await orchestrator.store.ledger.unlucky(LedgerQuery(report.job))

    assert [one.status for one in items] == [None]
    assert {attempt["status"] for one in items for attempt in one.attempts} == {None}
