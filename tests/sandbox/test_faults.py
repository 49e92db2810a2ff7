"""Faults: which URLs have them, what a client sees, and that they end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import ClientSession, ClientTimeout

from longline.sandbox.faults import Fault, FaultPlan
from longline.sandbox.templates.titles import is_cyrillic
from longline.sandbox.web import PracticeWeb, WebOptions
from tests.sandbox.client import open_client
from tests.virtual import VirtualClock

ALL_FAULTY = WebOptions(items=800, faults=1.0)


@pytest.fixture
async def client() -> AsyncIterator[ClientSession]:
    """Ask once: aiohttp silently repeats a GET whose connection was dropped."""
    async with open_client() as client:
        client._retry_connection = False  # there is no public way to say so
        yield client


def address_with(fault: Fault, web: PracticeWeb) -> str:
    plan = FaultPlan(1.0, web.options.seed)
    paths = (f"/api/templates/workflows/{number}" for number in web.catalogue.ids)
    return web.url + next(path for path in paths if plan.fault_of(path) is fault)


async def status_of(client: ClientSession, url: str) -> int:
    """Return the status, or 0 when there was no whole answer."""
    try:
        async with client.get(url, timeout=ClientTimeout(total=30)) as answer:
            await answer.read()
            return answer.status
    except (aiohttp.ClientError, TimeoutError):
        return 0


@pytest.mark.parametrize(
    ("fault", "status"),
    [(Fault.SERVER_ERROR, 500), (Fault.BAD_GATEWAY, 502), (Fault.UNAVAILABLE, 503)],
)
async def test_an_error_status_is_returned(
    client: ClientSession, clock: VirtualClock, fault: Fault, status: int
) -> None:
    async with PracticeWeb(ALL_FAULTY, clock=clock) as web:
        answer = await client.get(address_with(fault, web))

        assert answer.status == status
        assert "Retry-After" not in answer.headers
        assert web.tally.faults == {fault.value: 1}


async def test_a_connection_is_dropped_before_the_response(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with PracticeWeb(ALL_FAULTY, clock=clock) as web:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await client.get(address_with(Fault.DROPPED, web))

        assert web.tally.faults == {"dropped": 1}
        assert not web.tally.statuses


async def test_a_body_that_ends_too_early(client: ClientSession, clock: VirtualClock) -> None:
    async with PracticeWeb(ALL_FAULTY, clock=clock) as web:
        answer = await client.get(address_with(Fault.CUT, web))

        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_a_slow_body_exceeds_a_total_timeout(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with PracticeWeb(ALL_FAULTY, clock=clock) as web:
        quick_reads = ClientTimeout(total=60, sock_read=10)
        answer = await client.get(address_with(Fault.DRIP, web), timeout=quick_reads)

        assert answer.status == 200
        with pytest.raises(TimeoutError):
            await answer.read()


async def test_a_slow_body_is_complete_without_a_timeout(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with PracticeWeb(ALL_FAULTY, clock=clock) as web:
        before = clock.now()
        answer = await client.get(address_with(Fault.DRIP, web))
        body = await answer.json()

        assert body["workflow"]["id"]
        assert clock.now() - before > 60


async def test_the_web_stops_immediately_during_a_slow_body(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with PracticeWeb(ALL_FAULTY, clock=clock) as web:
        await client.get(address_with(Fault.DRIP, web))
        before = clock.now()

    assert clock.now() - before < 10


async def test_a_page_differs_from_the_charset_of_its_header(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with PracticeWeb(WebOptions(items=3000, faults=1.0), clock=clock) as web:
        plan = FaultPlan(1.0, web.options.seed)
        number, path = next(
            (number, path)
            for number in web.catalogue.ids
            if is_cyrillic(web.catalogue.title(number))
            and (path := web.catalogue.path(number))
            and plan.fault_of(path, is_html=True) is Fault.WRONG_CHARSET
        )
        answer = await client.get(web.url + path)
        body = await answer.read()

        assert answer.headers["Content-Type"] in ("text/html", "text/html; charset=utf-8")
        assert f"<h1>{web.catalogue.title(number)}</h1>" in body.decode("windows-1251")
        with pytest.raises(UnicodeDecodeError):
            body.decode("utf-8")


def test_only_pages_come_in_the_wrong_charset() -> None:
    plan = FaultPlan(1.0, seed=1)

    faults = {plan.fault_of(f"/api/{number}") for number in range(500)}

    assert faults == set(Fault) - {Fault.WRONG_CHARSET}


async def test_three_attempts_always_succeed(client: ClientSession, clock: VirtualClock) -> None:
    async with PracticeWeb(WebOptions(items=40, faults=1.0, odd_shapes=False), clock=clock) as web:
        urls = [f"{web.api_url}/templates/workflows/{number}" for number in web.catalogue.ids]
        first = [await status_of(client, url) for url in urls]
        second = [await status_of(client, url) for url in urls]
        third = [await status_of(client, url) for url in urls]

        assert 200 not in first
        assert 200 in second
        assert set(third) == {200}


async def test_the_share_of_faulty_urls_is_as_configured(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with PracticeWeb(WebOptions(items=300, faults=0.15), clock=clock) as web:
        urls = [f"{web.api_url}/workflows/{number}" for number in web.catalogue.ids]
        statuses = [await status_of(client, url) for url in urls]

        assert len(statuses) == 300
        assert 25 <= web.tally.faults.total() <= 65


async def test_a_throttled_request_consumes_no_fault(
    client: ClientSession, clock: VirtualClock
) -> None:
    options = WebOptions(items=800, faults=1.0, rate=0.001, burst=1)
    async with PracticeWeb(options, clock=clock) as web:
        url = address_with(Fault.SERVER_ERROR, web)
        statuses = [await status_of(client, url) for _ in range(3)]

        assert statuses == [500, 429, 429]
        assert web.tally.faults.total() == 1


async def test_the_tally_page_never_fails(client: ClientSession, clock: VirtualClock) -> None:
    async with PracticeWeb(WebOptions(items=5, faults=1.0), clock=clock) as web:
        assert await status_of(client, f"{web.url}/__practice__/tally") == 200


def test_the_same_seed_gives_the_same_urls_faults() -> None:
    paths = [f"/workflows/{number}" for number in range(200)]
    plans = [FaultPlan(0.3, seed) for seed in (4, 4, 5)]

    faults = [[plan.fault_of(path) for path in paths] for plan in plans]

    assert faults[0] == faults[1]
    assert faults[0] != faults[2]


@pytest.mark.parametrize("address", [f"/a/{number}" for number in range(20)])
def test_a_url_fails_once_or_twice_and_then_succeeds(address: str) -> None:
    plan = FaultPlan(1.0, seed=9)

    faults = [plan.next(address) for _ in range(6)]

    assert faults[0] is not None
    assert faults[2:] == [None] * 4
