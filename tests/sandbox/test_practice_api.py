"""The practice API: authentication, pagination, nested resources and failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import ClientSession, encode_basic_auth

from longline.sandbox.sites.authentication import CLIENT, CLIENT_SECRET, KEY, PASSWORD, TOKEN, USER
from longline.sandbox.sites.edge_cases import Mood, mood_of
from longline.sandbox.web import PracticeWeb
from tests.virtual import VirtualClock

BEARER = {"authorization": f"Bearer {TOKEN}"}
BASIC = {"authorization": encode_basic_auth(USER, PASSWORD)}


async def asked(
    client: ClientSession, url: str, headers: Mapping[str, str] | None = None
) -> tuple[int, Any, Mapping[str, str]]:
    async with client.get(url, headers=headers) as answer:
        return answer.status, await answer.json(), answer.headers


@pytest.mark.parametrize("name", ["books", "stations", "readings", "invoices", "parts"])
async def test_requests_without_credentials_are_refused(
    client: ClientSession, web: PracticeWeb, name: str
) -> None:
    status, answer, _ = await asked(client, f"{web.url}/rest/{name}?api_key=guess")

    assert (status, list(answer)) == (401, ["error"])


async def test_books_are_paginated_by_cursor(client: ClientSession, web: PracticeWeb) -> None:
    rows: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        _, answer, _ = await asked(client, f"{web.url}/rest/books?cursor={cursor}", BEARER)
        rows += answer["data"]["books"]
        cursor = answer["meta"]["next_cursor"]

    assert rows == web.sites.rest.truth()["books"]


async def test_an_invalid_cursor_is_an_error(client: ClientSession, web: PracticeWeb) -> None:
    status, _, _ = await asked(client, f"{web.url}/rest/books?cursor=nonsense", BEARER)

    assert status == 400


async def test_stations_are_paginated_by_link_header(
    client: ClientSession, web: PracticeWeb
) -> None:
    rows: list[Any] = []
    url = f"{web.url}/rest/stations"
    while url:
        async with client.get(url, headers={"x-api-key": KEY}) as answer:
            rows += await answer.json()
            url = str(answer.links["next"]["url"]) if "next" in answer.links else ""

    assert rows == web.sites.rest.truth()["stations"]


async def test_readings_are_cut_by_offset(client: ClientSession, web: PracticeWeb) -> None:
    base = f"{web.url}/rest/readings?api_key={KEY}&limit=25"

    rows = [
        row
        for offset in (0, 25, 50)
        for row in (await asked(client, f"{base}&offset={offset}"))[1]["readings"]
    ]

    assert rows == web.sites.rest.truth()["readings"]


async def test_parts_contain_the_next_url(client: ClientSession, web: PracticeWeb) -> None:
    rows: list[Any] = []
    path: str | None = "/rest/parts"
    while path:
        _, answer, _ = await asked(client, f"{web.url}{path}", BASIC)
        rows += answer["results"]
        path = answer["next"]

    assert rows == web.sites.rest.truth()["parts"]


async def new_token(client: ClientSession, web: PracticeWeb) -> dict[str, str]:
    form = {"grant_type": "client_credentials"}
    headers = {"authorization": encode_basic_auth(CLIENT, CLIENT_SECRET)}
    async with client.post(f"{web.url}/rest/token", data=form, headers=headers) as answer:
        return {"authorization": f"Bearer {(await answer.json())['access_token']}"}


async def test_a_token_is_revoked_after_three_requests(
    client: ClientSession, web: PracticeWeb
) -> None:
    token = await new_token(client, web)

    pages = [await asked(client, f"{web.url}/rest/invoices?page={n}", token) for n in range(1, 5)]

    assert [status for status, _, _ in pages] == [200, 200, 200, 403]
    assert pages[3][1] == {"error": "token_expired"}
    assert pages[0][1]["pages"] == 4


async def test_a_token_expires(
    client: ClientSession, web: PracticeWeb, clock: VirtualClock
) -> None:
    token = await new_token(client, web)
    await clock.sleep(601)

    status, _, _ = await asked(client, f"{web.url}/rest/invoices", token)

    assert status == 401


async def test_a_wrong_client_gets_no_token(client: ClientSession, web: PracticeWeb) -> None:
    form = {"grant_type": "client_credentials", "client_id": CLIENT, "client_secret": "no"}
    async with client.post(f"{web.url}/rest/token", data=form) as answer:
        assert (answer.status, await answer.json()) == (401, {"error": "invalid_client"})


async def test_customers_have_orders_and_orders_have_lines(
    client: ClientSession, web: PracticeWeb
) -> None:
    truth = web.sites.rest.truth()
    order = truth["orders"][0]

    _, orders, _ = await asked(client, f"{web.url}/rest/customers/{order['customer_id']}/orders")
    _, lines, _ = await asked(client, f"{web.url}/rest/orders/{order['id']}/lines")

    assert {"customer_id": order["customer_id"], **orders["orders"][0]} == order
    assert len(lines["lines"]) == order["lines"]
    assert len(truth["lines"]) > len(truth["orders"]) > len(truth["customers"]) == 9


async def test_one_customer_has_no_page_of_orders(client: ClientSession, web: PracticeWeb) -> None:
    status, _, _ = await asked(client, f"{web.url}/rest/customers/5/orders")

    assert status == 404


async def test_changes_are_filtered_by_time(client: ClientSession, web: PracticeWeb) -> None:
    _, before, _ = await asked(client, f"{web.url}/rest/changes")
    newest = max(row["updated_at"] for row in web.sites.rest.truth()["changes"])

    web.sites.rest.change(4, 9)
    _, after, _ = await asked(client, f"{web.url}/rest/changes?since={newest}")

    assert before["total"] == 30
    assert {4, 9} <= {row["id"] for row in after["items"]}
    assert after["total"] <= 3
    assert web.sites.rest.sinces == [None, newest]


STATUSES = {
    Mood.FINE: [200, 200, 200],
    Mood.FLAKY: [500, 500, 200],
    Mood.BUSY: [200, 200, 200],
    Mood.THROTTLED: [429, 200, 200],
    Mood.OLD: [410, 410, 410],
    Mood.GONE: [404, 404, 404],
    Mood.WITHDRAWN: [200, 200, 200],
    Mood.CORRUPT: [200, 200, 200],
}


@pytest.mark.parametrize("mood", Mood)
async def test_each_edge_case_fails_as_defined(
    client: ClientSession, web: PracticeWeb, mood: Mood
) -> None:
    number = next(number for number in range(1, 25) if mood_of(number) is mood)

    answers = [await asked(client, f"{web.url}/rest/errands/{number}") for _ in range(3)]

    can_be_read = any(row["id"] == number for row in web.sites.rest.truth()["errands"])
    assert [status for status, _, _ in answers] == STATUSES[mood]
    assert bool(answers[-1][1].get("errand")) == can_be_read


async def test_busy_and_throttled_responses_have_retry_after(
    client: ClientSession, web: PracticeWeb
) -> None:
    busy = next(number for number in range(1, 25) if mood_of(number) is Mood.BUSY)
    throttled = next(number for number in range(1, 25) if mood_of(number) is Mood.THROTTLED)

    _, body, _ = await asked(client, f"{web.url}/rest/errands/{busy}")
    _, _, headers = await asked(client, f"{web.url}/rest/errands/{throttled}")

    assert body == {"error": "busy", "retry_after": 5}
    assert headers["retry-after"] == "5"


QUERY = """
query Albums($first: Int, $after: String) {  # a comment
  albums(first: $first, after: $after) {
    nodes { id title artist { name } }
    pageInfo { hasNextPage endCursor }
  }
}
"""


async def albums(client: ClientSession, web: PracticeWeb, query: str, **variables: Any) -> Any:
    body = {"query": query, "variables": variables}
    async with client.post(f"{web.url}/graphql", json=body) as answer:
        assert answer.status == 200
        return await answer.json()


async def test_a_query_returns_the_selected_fields(client: ClientSession, web: PracticeWeb) -> None:
    answer = await albums(client, web, QUERY, first=10)

    row = web.sites.graphql.truth()["albums"][0]
    assert answer["data"]["albums"]["nodes"][0] == {
        "id": row["id"],
        "title": row["title"],
        "artist": {"name": row["artist"]["name"]},
    }
    assert answer["data"]["albums"]["pageInfo"]["hasNextPage"] is True


@pytest.mark.parametrize("first", ["20", 0, None, True])
async def test_a_count_that_is_not_a_number_is_an_error(
    client: ClientSession, web: PracticeWeb, first: Any
) -> None:
    answer = await albums(client, web, QUERY, first=first)

    assert "first" in answer["errors"][0]["message"]


async def test_the_third_page_is_busy_once(client: ClientSession, web: PracticeWeb) -> None:
    first = await albums(client, web, QUERY, first=20)
    after = first["data"]["albums"]["pageInfo"]["endCursor"]
    second = await albums(client, web, QUERY, first=20, after=after)
    after = second["data"]["albums"]["pageInfo"]["endCursor"]

    busy = await albums(client, web, QUERY, first=20, after=after)
    last = await albums(client, web, QUERY, first=20, after=after)

    assert busy["errors"][0]["extensions"] == {"code": "TRY_AGAIN"}
    assert len(last["data"]["albums"]["nodes"]) == 5
    assert last["data"]["albums"]["pageInfo"]["hasNextPage"] is False


@pytest.mark.parametrize(
    "query",
    [
        "{ songs { id } }",
        "{ albums }",
        "{ albums { nodes } }",
        "{ albums { nodes { wings } } }",
        "{ albums { nodes { id }",
        "hello",
    ],
)
async def test_a_bad_query_is_an_error_with_status_200(
    client: ClientSession, web: PracticeWeb, query: str
) -> None:
    answer = await albums(client, web, query)

    assert answer["data"] is None
    assert answer["errors"][0]["extensions"] == {"code": "BAD_QUERY"}
