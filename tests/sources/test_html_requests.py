"""Pages that are requested with POST: forms, multipart forms, JSON and GraphQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.analysis.reextract import reextract, source_for
from longline.config.documents import read_document
from longline.core.errors import BadFile
from longline.core.model import JobState
from longline.http.archive.warc import open_warc
from longline.http.bodies import FilePart, multipart_body
from longline.orchestrator import Orchestrator
from longline.sources.manifest import parse_manifest
from longline.storage.query import RecordQuery
from longline.storage.store import open_store
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

HEAD = "manifest: html\nname: shop\nrate: unlimited\nfields: {title: h1}\n"


@pytest.fixture
def bodies(site: ScriptedSite) -> dict[str, list[Any]]:
    """A site that answers POST: a search by form, and details; what it received by path."""
    received: dict[str, list[Any]] = {}

    async def search(request: web.Request) -> web.StreamResponse:
        form = {name: str(value) for name, value in (await request.post()).items()}
        received.setdefault("/search", []).append(form)
        number = form["page"]
        return web.Response(
            text=f'<li data-id="{number}"><a href="/detail?of={number}">x</a></li>',
            content_type="text/html",
        )

    async def detail(request: web.Request) -> web.StreamResponse:
        kind = request.content_type
        if kind == "multipart/form-data":
            parts = await request.post()
            sent: Any = {
                name: (part.filename, part.file.read()) if isinstance(part, web.FileField) else part
                for name, part in parts.items()
            }
        else:
            sent = await request.json()
        received.setdefault("/detail", []).append(sent)
        return web.Response(
            text=f"<h1>{request.query.get('of', 'one')}</h1>", content_type="text/html"
        )

    site.answers |= {"/search": search, "/detail": detail}
    return received


async def run(text: str, home: Path, clock: VirtualClock) -> list[Any]:
    path = home / "shop.yaml"
    path.write_text(HEAD + text)
    async with Orchestrator(str(path), home=home, clock=clock, archive=True) as orchestrator:
        report = await orchestrator.execute()
        rows = await orchestrator.store.records.list(RecordQuery(source="shop"))
    with open_store(f"sqlite:///{home}/longline.sqlite") as store:
        async with open_warc(home / "archive") as archive:
            job = await store.jobs.get(report.job)
            again = await reextract(store, archive, job, source_for(job, None, {}), clock)
    assert report.state is JobState.COMPLETE
    assert {one.status.value for one in again.comparisons} == {"same"}
    return sorted(row["data"]["title"] for row in rows)


async def test_lists_are_searched_by_form_and_items_sent_as_json(
    site: ScriptedSite, bodies: dict[str, list[Any]], tmp_path: Path, clock: VirtualClock
) -> None:
    found = await run(
        f"start: {{url: {site.url}/search, form: {{q: rod, page: '{{page}}'}}, "
        "each: {page: {from: 1, to: 2}}}\n"
        "items: {elements: li, link: a, fields: {number: '@data-id'}, "
        "request: {json: {id: '{number}', all: true}}}\n",
        tmp_path,
        clock,
    )

    assert found == ["1", "2"]
    assert bodies["/search"] == [{"q": "rod", "page": "1"}, {"q": "rod", "page": "2"}]
    assert sorted(bodies["/detail"], key=str) == [
        {"id": "1", "all": True},
        {"id": "2", "all": True},
    ]


async def test_start_urls_with_different_bodies_are_different_items(
    site: ScriptedSite, bodies: dict[str, list[Any]], tmp_path: Path, clock: VirtualClock
) -> None:
    query = "query($n: Int) { thing(n: $n) { name } }"
    found = await run(
        f"start:\n- {{url: {site.url}/detail, "
        f"graphql: {{query: '{query}', variables: {{n: 1}}}}}}\n"
        f"- {{url: {site.url}/detail, multipart: {{a: x, f: {{file: a.txt, content: hello}}}}}}\n",
        tmp_path,
        clock,
    )

    assert found == ["one", "one"]
    assert {"query": query, "variables": {"n": 1}} in bodies["/detail"]
    assert {"a": "x", "f": ("a.txt", b"hello")} in bodies["/detail"]


def test_a_multipart_form_is_always_the_same_and_cannot_be_broken_out_of() -> None:
    values = {"a": ["1", 2], 'b"\r\n': FilePart('x"\r\ny', b"\x00", "image/png")}

    body = multipart_body(values)

    assert multipart_body(values) == body
    assert body.content.count(b"\r\nContent-Disposition: ") == 3
    assert b'name="b%22%0D%0A"; filename="x%22%0D%0Ay"' in body.content


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
def test_the_type_of_a_part_makes_no_header(end: str) -> None:
    body = multipart_body({"a": FilePart("x", b"", f"image/png{end}X: 1")})

    assert b"Content-Type: image/pngX: 1\r\n" in body.content


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("start: {url: https://a.test, graphql: ' '}", 5, "has text"),
        ("start: {url: https://a.test, form: {a: 1}, json: {}}", 5, "different bodies"),
        ("start: {url: https://a.test, method: GET, form: {a: 1}}", 5, "not sent with GET"),
        ("start: {url: https://a.test, form: {a: '{b}'}}", 5, "{b} in start is not a parameter"),
        (
            "start: https://a.test\nitems: {links: a, request: {json: '{c}'}}",
            6,
            "{c} in items is not a parameter; known: url, key",
        ),
        ('start: {url: https://a.test, headers: {X-A: "a\\r\\nB: c"}}', 5, "line break"),
        ("start: {url: https://a.test, headers: {X A: a}}", 5, "header name"),
        ("transport: browser\nstart: {url: https://a.test, form: {a: 1}}", 5, "transport: http"),
    ],
)
def test_a_wrong_request_is_one_error_with_its_line(
    text: str, line: int, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(f"{HEAD}{text}\n")

    with pytest.raises(BadFile, match=problem) as error:
        parse_manifest(read_document(path))

    assert error.value.line == line
