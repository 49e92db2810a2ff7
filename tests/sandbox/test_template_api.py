"""The template API: generated templates and a corpus file, in the shapes of the real API."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession

from longline.core.errors import BadFile
from longline.sandbox.templates.catalogue import Form
from longline.sandbox.templates.corpus import CorpusShelf
from longline.sandbox.web import PracticeWeb, WebOptions
from tests.sandbox.client import status_at
from tests.virtual import VirtualClock

DETAIL_FIELDS = {
    "id", "name", "views", "recentViews", "totalViews", "createdAt", "description", "workflow",
    "status", "user", "nodes", "categories", "image", "lastUpdatedBy", "workflowInfo",
}  # fmt: skip


async def get(client: ClientSession, url: str) -> Any:
    async with client.get(url) as answer:
        assert answer.status == 200
        assert answer.content_type == "application/json"
        return await answer.json()


async def test_health(client: ClientSession, web: PracticeWeb) -> None:
    assert await get(client, f"{web.api_url}/health") == {"status": "OK"}


async def test_detail_has_the_fields_of_the_census(client: ClientSession, web: PracticeWeb) -> None:
    number = first_with(web, Form.DETAIL)

    answer = await get(client, f"{web.api_url}/templates/workflows/{number}")

    detail = answer["workflow"]
    assert set(detail) == DETAIL_FIELDS
    assert detail["id"] == number
    assert detail["name"] == web.catalogue.title(number)
    assert set(detail["user"]) == {"id", "name", "username", "bio", "verified", "links", "avatar"}
    assert {"nodes", "connections"} <= set(detail["workflow"])


async def test_detail_describes_each_node_type_with_its_icon(
    client: ClientSession, web: PracticeWeb
) -> None:
    number = first_with(web, Form.DETAIL)

    answer = await get(client, f"{web.api_url}/templates/workflows/{number}")

    detail = answer["workflow"]
    assert {node["name"] for node in detail["nodes"]} == {
        node["type"] for node in detail["workflow"]["nodes"]
    }
    icons = [node["iconData"] for node in detail["nodes"]]
    assert any(icon.get("fileBuffer", "").startswith("data:image/svg+xml") for icon in icons)
    assert all(node["group"].startswith("[") for node in detail["nodes"])


async def test_the_flat_form_has_the_same_workflow(client: ClientSession, web: PracticeWeb) -> None:
    number = first_with(web, Form.FLAT)

    flat = await get(client, f"{web.api_url}/workflows/templates/{number}")
    detail = await get(client, f"{web.api_url}/templates/workflows/{number}")

    assert set(flat) == {"id", "name", "workflow"}
    assert flat["workflow"] == detail["workflow"]["workflow"]


async def test_the_strapi_form_has_the_modification_time(
    client: ClientSession, web: PracticeWeb
) -> None:
    number = first_with(web, Form.STRAPI)

    answer = await get(client, f"{web.api_url}/workflows/{number}")

    assert set(answer) == {"data", "meta"}
    assert answer["data"]["id"] == number
    assert set(answer["data"]["attributes"]) == {
        "name", "status", "description", "workflow", "workflowInfo", "createdAt", "updatedAt",
        "views", "recentViews", "hidden", "username", "price", "difficulty", "readyToDemo",
    }  # fmt: skip


@pytest.mark.parametrize(
    "path",
    ["templates/workflows/999999", "workflows/templates/999999", "workflows/999999", "nothing"],
)
async def test_an_unknown_template_is_404(
    client: ClientSession, web: PracticeWeb, path: str
) -> None:
    assert await status_at(client, f"{web.api_url}/{path}") == 404


async def test_categories_have_parents(client: ClientSession, web: PracticeWeb) -> None:
    answer = await get(client, f"{web.api_url}/templates/categories")

    assert len(answer["categories"]) == 31
    assert sum(entry["parent"] is None for entry in answer["categories"]) == 7


async def test_the_list_returns_every_template_once(
    client: ClientSession, web: PracticeWeb
) -> None:
    pages = [
        await get(client, f"{web.api_url}/templates/search?page={page}&rows=25")
        for page in (1, 2, 3, 4)
    ]

    seen = [item["id"] for page in pages for item in page["workflows"]]
    assert sorted(seen) == list(web.catalogue.ids)
    assert [len(page["workflows"]) for page in pages] == [25, 25, 10, 0]
    assert pages[0]["totalWorkflows"] == 60


async def test_a_row_of_the_list_has_no_categories(client: ClientSession, web: PracticeWeb) -> None:
    answer = await get(client, f"{web.api_url}/templates/search")

    assert len(answer["workflows"]) == 20
    assert set(answer["workflows"][0]) - {"price"} == {
        "id", "name", "totalViews", "purchaseUrl", "user", "description", "createdAt", "nodes",
    }  # fmt: skip
    assert set(answer["filters"][0]) == {"field_name", "sampled", "stats", "counts"}


async def test_the_newest_come_first_unless_asked_otherwise(
    client: ClientSession, web: PracticeWeb
) -> None:
    newest = await get(client, f"{web.api_url}/templates/search?rows=60")
    oldest = await get(client, f"{web.api_url}/templates/search?rows=60&sort=createdAt:asc")

    dates = [item["createdAt"] for item in newest["workflows"]]
    assert dates == sorted(dates, reverse=True)
    assert [item["createdAt"] for item in oldest["workflows"]] == dates[::-1]


async def test_the_list_can_be_sorted_by_views(client: ClientSession, web: PracticeWeb) -> None:
    answer = await get(client, f"{web.api_url}/templates/search?rows=60&sort=views:desc")

    views = [item["totalViews"] for item in answer["workflows"]]
    assert views == sorted(views, reverse=True)


async def test_a_search_returns_titles_that_contain_the_text(
    client: ClientSession, web: PracticeWeb
) -> None:
    answer = await get(client, f"{web.api_url}/templates/search?search=SLACK&rows=100")

    titles = [web.catalogue.title(number).lower() for number in web.catalogue.ids]
    assert answer["totalWorkflows"] == sum("slack" in title for title in titles)


async def test_a_category_is_filtered_by_name(client: ClientSession, web: PracticeWeb) -> None:
    everything = await get(client, f"{web.api_url}/templates/search")
    facet = everything["filters"][0]["counts"][0]

    answer = await get(client, f"{web.api_url}/templates/search?category={facet['value']}")

    assert answer["totalWorkflows"] == facet["count"]


@pytest.mark.parametrize("query", ["rows=101", "rows=0", "page=0", "page=x"])
async def test_an_invalid_page_number_is_400(
    client: ClientSession, web: PracticeWeb, query: str
) -> None:
    assert await status_at(client, f"{web.api_url}/templates/search?{query}") == 400


async def test_every_gap_leaves_another_form(client: ClientSession, clock: VirtualClock) -> None:
    async with PracticeWeb(WebOptions(items=400), clock=clock) as web:
        holed = [number for number in web.catalogue.ids if web.catalogue.gaps(number)]
        statuses = [
            [
                await status_at(client, f"{web.api_url}/{path}/{number}")
                for path in ("templates/workflows", "workflows/templates", "workflows")
            ]
            for number in holed
        ]

        assert {tuple(row) for row in statuses} == {
            (200, 404, 200),
            (404, 404, 200),
            (404, 200, 404),
        }
        assert 10 <= len(holed) <= 40


async def test_missing_templates_are_only_in_the_sitemap(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with PracticeWeb(WebOptions(items=40, missing=0.1), clock=clock) as web:
        number = min(web.catalogue.missing)
        paths = [
            f"/api/templates/workflows/{number}",
            f"/api/workflows/templates/{number}",
            f"/api/workflows/{number}",
            web.catalogue.path(number),
            f"/workflows/{number}",
        ]
        statuses = [await status_at(client, web.url + path) for path in paths]
        sitemap = await (await client.get(f"{web.url}/sitemap-workflows.xml")).text()
        found = await get(client, f"{web.api_url}/templates/search")

        assert statuses == [404] * 5
        assert f"/workflows/{number}-" in sitemap
        assert found["totalWorkflows"] == 36
        assert len(web.catalogue.obtainable) == 36


async def test_the_tally_counts_received_requests(client: ClientSession, web: PracticeWeb) -> None:
    await client.get(f"{web.api_url}/health")
    await client.get(f"{web.api_url}/health?again")
    await client.get(f"{web.api_url}/nothing")

    assert await get(client, f"{web.url}/__practice__/tally") == {
        "requests": 3,
        "rate_limited": 0,
        "youtube": 0,
        "statuses": {"200": 2, "404": 1},
        "faults": {},
        "hits": {"/api/health": 2, "/api/nothing": 1},
    }


def first_with(web: PracticeWeb, form: Form) -> int:
    """Return a template without odd shapes that has this form."""
    return next(
        n for n in web.catalogue.ids if web.catalogue.has(n, form) and not web.catalogue.gaps(n)
    )


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"Template {number}",
        "workflow": {"nodes": [], "connections": {}},
        "detail": {
            "description": "Does things.",
            "createdAt": f"2024-01-{number:02d}T08:00:00.000Z",
            "views": 3,
            "totalViews": 3,
            "status": "published",
            "categories": [{"id": 5, "name": "Engineering"}],
            "image": [],
            "user": {"username": "ada", "name": "Ada", "verified": True},
            "nodes": [{"id": 20, "name": "n8n-nodes-base.if", "displayName": "If"}],
        },
    }


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    body = b"\n".join(orjson.dumps(line) for line in rows) + b"\n"
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return path


@pytest.mark.parametrize("name", ["some.jsonl", "some.jsonl.gz"])
async def test_the_templates_of_a_file_are_served(
    client: ClientSession, clock: VirtualClock, tmp_path: Path, name: str
) -> None:
    corpus = write(tmp_path / name, [row(9), row(4)])
    options = WebOptions(corpus=corpus, odd_shapes=False)

    async with PracticeWeb(options, clock=clock) as web:
        detail = await (await client.get(f"{web.api_url}/templates/workflows/4")).json()
        found = await (await client.get(f"{web.api_url}/templates/search")).json()
        strapi = await (await client.get(f"{web.api_url}/workflows/4")).json()
        page = await (await client.get(f"{web.url}/workflows/4")).text()

    assert list(web.catalogue.ids) == [4, 9]
    line = row(4)
    assert detail["workflow"] == {**line.pop("detail"), **line}
    assert [item["id"] for item in found["workflows"]] == [9, 4]
    assert found["filters"][0]["counts"][0]["count"] == 2
    assert "updatedAt" not in strapi["data"]["attributes"]
    assert "<h1>Template 4</h1>" in page


@pytest.mark.parametrize(
    ("line", "datum"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ('{"id": 1, "name": "a", "workflow": {}}', "'detail'"),
        ('{"id": "1", "name": "a", "workflow": {}, "detail": {}}', "'id'"),
        (orjson.dumps(row(1)).decode(), "template 1"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(tmp_path: Path, line: str, datum: str) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(orjson.dumps(row(1)).decode() + "\n" + line + "\n")

    with pytest.raises(BadFile, match=datum) as caught:
        CorpusShelf(path)

    assert caught.value.line == 2


def test_an_empty_corpus_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()

    with pytest.raises(BadFile) as refused:
        CorpusShelf(path)

    assert refused.value.path == str(path)
    assert refused.value.__cause__ is None  # it was read


def test_a_missing_corpus_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile) as refused:
        CorpusShelf(tmp_path / "nowhere.jsonl")

    assert refused.value.path == str(tmp_path / "nowhere.jsonl")
    assert isinstance(refused.value.__cause__, FileNotFoundError)


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "cut.jsonl.gz", [row(number) for number in range(1, 20)])
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(BadFile) as refused:
        CorpusShelf(path)

    assert refused.value.path == str(path)
    assert isinstance(refused.value.__cause__, EOFError | OSError)
