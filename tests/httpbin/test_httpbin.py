"""httpbin as an independent check of the whole chain: what it received, and what we read.

Nothing of it was written together with the chain, so the two cannot share a misunderstanding.
"""

from __future__ import annotations

import pytest

from longline.core.errors import Throttled
from tests.httpbin.cases import RIGHT, WRONG, Case, Failing
from tests.httpbin.client import Client

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
async def test_a_response_is_read_correctly(client: Client, case: Case) -> None:
    page = await client.ask(case.path, **case.values)

    assert case.is_right(page), (page.status, page.url, dict(page.headers), page.body[:500])


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.path)
async def test_a_failure_has_its_error_and_number_of_attempts(
    client: Client, case: Failing
) -> None:
    with pytest.raises(case.error) as caught:
        await client.ask(case.path, **case.values)

    assert type(caught.value) is case.error
    assert client.requests == case.requests


async def test_throttled_responses_are_counted(client: Client) -> None:
    with pytest.raises(Throttled):
        await client.ask("/status/429")

    assert (client.usage.rate_limited, client.usage.retries) == (3, 2)


async def test_received_bytes_are_counted_after_decompression(client: Client) -> None:
    await client.ask("/robots.txt")
    before = client.usage.received_bytes

    await client.ask("/bytes/1000?seed=1")

    assert client.usage.received_bytes - before == 1000
