"""Every way of finding items, repeated from the archive: the same, then changed in each item."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.analysis.reextract import Reextraction, ReextractStatus
from tests.analysis.archived_manifests import Past, past_of, quote
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

COUNT = 12
PER = 4


def counts(result: Reextraction) -> dict[str, int]:
    return {finding.value: n for finding in ReextractStatus if (n := len(result.of(finding)))}


def slice_of(start: int) -> list[int]:
    return list(range(start, min(start + PER, COUNT)))


def html(numbers: list[int], more: str = "") -> web.Response:
    text = "".join(quote(n) for n in numbers) + more
    return web.Response(text=f"<main>{text}</main>", content_type="text/html")


def record(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"name {number}", "title": f"title {number}", "x": 1.50}


async def numbered(request: web.Request) -> web.StreamResponse:
    return html(slice_of((int(request.query.get("page", 1)) - 1) * PER))


async def by_offset(request: web.Request) -> web.StreamResponse:
    return html(slice_of(int(request.query.get("offset", 0))))


async def more_json(request: web.Request) -> web.StreamResponse:
    page = int(request.query.get("page", 1))
    numbers = slice_of((page - 1) * PER)
    text = "".join(quote(n) for n in numbers)
    return web.json_response({"html": text, "records": [record(n) for n in numbers]})


async def shell(_request: web.Request) -> web.StreamResponse:
    return web.Response(text="<main></main>", content_type="text/html")


async def first(_request: web.Request) -> web.StreamResponse:
    return html(slice_of(0))


async def redirected(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound(f"/numbered?{request.query_string}")


async def categories(_request: web.Request) -> web.StreamResponse:
    return html([], "".join(f'<a class="cat" href="/cat{n}">c</a>' for n in range(3)))


async def posted(request: web.Request) -> web.StreamResponse:
    page = (await request.json())["page"]
    return web.json_response({"items": [record(n) for n in slice_of((page - 1) * PER)]})


async def graphql(request: web.Request) -> web.StreamResponse:
    after = int((await request.json()).get("variables", {}).get("after") or 0)
    info = {"hasNextPage": after + PER < COUNT, "endCursor": str(after + PER)}
    nodes = [record(n) for n in slice_of(after)]
    return web.json_response({"data": {"goods": {"nodes": nodes, "pageInfo": info}}})


async def headed(request: web.Request) -> web.StreamResponse:
    page = int(request.query.get("page", 0))
    link = f'<{request.url.with_query(page=page + 1)}>; rel="next"'
    headers = {"Link": link} if (page + 1) * PER < COUNT else {}
    return web.json_response([record(n) for n in slice_of(page * PER)], headers=headers)


async def parents(_request: web.Request) -> web.StreamResponse:
    return web.json_response([{"id": n} for n in range(3)])


def category(number: int) -> Any:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return html(slice_of(number * PER))

    return answer


def children(number: int) -> Any:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response([record(n) for n in slice_of(number * PER)])

    return answer


def page_of(number: int) -> Any:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return html([number])

    return answer


ELEMENTS = """
manifest: html
name: quotes
start: {site}START
PAGES
items: {{elements: div.quote}}
fields: {{text: .text, author: .author}}
"""
API = """
manifest: api
name: goods
base_url: {site}
endpoints:
  goods: {{ENDPOINT}}
"""
HTML = {
    "numbered": ("/numbered", "pages: {{kind: numbered, param: page, until: empty}}"),
    "offset": ("/offset", "pages: {{kind: offset, size: 4, until: empty}}"),
    "more html": ("/more", "pages: {{kind: more, url: '{site}/numbered?page={{page}}'}}"),
    "more json": ("/more", "pages: {{kind: more, url: '{site}/json?page={{page}}', html: html}}"),
    "follow": ("/categories", "follow: {{links: .cat, depth: 1}}"),
    "redirected": ("/redirected", "pages: {{kind: numbered, param: page, until: empty}}"),
}
LISTS = {
    "page": "path: /posted, method: POST, records: items, "
    "pagination: {{kind: page, parameter: page, into: body, start: 1}}",
    "graphql": "path: /graphql, graphql: {{query: 'query($after: String) {{ goods {{ id }} }}'}}, "
    "records: data.goods.nodes, pagination: {{kind: graphql, page_info: data.goods.pageInfo}}",
    "link": "path: /headed, pagination: {{kind: link}}",
}


@pytest.fixture
def past(tmp_path: Path, site: ScriptedSite, clock: VirtualClock) -> Past:
    past = past_of(tmp_path / "home", site, clock)
    site.answers |= {
        "/numbered": numbered,
        "/offset": by_offset,
        "/json": more_json,
        "/more": first,
        "/shell": shell,
        "/redirected": redirected,
        "/categories": categories,
        "/posted": posted,
        "/graphql": graphql,
        "/headed": headed,
        "/parents": parents,
    }
    site.answers |= {f"/cat{n}": category(n) for n in range(3)}
    site.answers |= {f"/parents/{n}": children(n) for n in range(3)}
    site.answers |= {f"/p/{n}": page_of(n) for n in range(COUNT)}
    return past


async def both(past: Past, text: str, changed: str, count: int = COUNT) -> None:
    """Run a manifest; without a change all is the same, with one all has changed."""
    job = await past.run(text)
    assert (job.is_discovered, len(await past.records())) == (True, count)

    same = await past.again()
    assert (counts(same), same.exit_code) == ({"same": count}, 0)
    other = await past.again(changed)
    assert (counts(other), other.exit_code) == ({"changed": count}, 0)


@pytest.mark.parametrize("shape", HTML)
async def test_elements_of_every_kind_of_list(past: Past, shape: str) -> None:
    start, pages = HTML[shape]
    text = ELEMENTS.replace("START", start).replace("PAGES", pages)

    await both(past, text, text.replace(".author", ".full"))


async def test_records_behind_a_page(past: Past) -> None:
    text = """
manifest: html
name: quotes
start: {site}/shell
pages: {{kind: more, url: '{site}/json?page={{page}}', first: 1, records: records}}
items: {{elements: div.quote}}
fields: {{text: {{path: name}}, id: {{path: id}}}}
"""

    await both(past, text, text.replace("path: name", "path: title"))


@pytest.mark.parametrize("shape", LISTS)
async def test_records_of_every_kind_of_list(past: Past, shape: str) -> None:
    fields = "key: id, fields: {{id: id, name: name}}"
    text = API.replace("ENDPOINT", f"{LISTS[shape]}, {fields}")

    await both(past, text, text.replace("name: name", "name: title"))


async def test_records_below_other_records(past: Past) -> None:
    text = """
manifest: api
name: goods
base_url: {site}
endpoints:
  parents: {{path: /parents, key: id, collect: false}}
  goods:
    path: /parents/{{parent.id}}
    parent: parents
    key: id
    fields: {{id: id, name: name, above: parent.id}}
"""

    await both(past, text, text.replace("name: name", "name: title"))


async def test_pages_of_a_sitemap(past: Past) -> None:
    urls = "".join(f"<url><loc>{past.site.url}/p/{n}</loc></url>" for n in range(COUNT))
    past.site.says("/sitemap.xml", f"<urlset>{urls}</urlset>")
    text = """
manifest: html
name: quotes
start: {site}/
items: {{sitemap: true}}
fields: {{author: .author}}
"""

    await both(past, text, text.replace(".author", ".full"))


async def test_numbers_and_odd_text_survive_the_database(past: Past) -> None:
    odd = [{"id": n, "name": f"a\u0000b{n}", "x": 10**25 + n, "y": 1e22} for n in range(2)]
    past.site.says("/goods", json.dumps({"items": odd}))
    text = API.replace("ENDPOINT", "path: /goods, records: items, key: id")

    await past.run(text)

    assert counts(await past.again()) == {"same": 2}
    renamed = await past.again(text.replace("key: id", "key: x"))
    assert sum(counts(renamed).values()) == 2
    assert "same" not in counts(renamed)


async def test_keys_that_are_too_long_are_known_again(past: Past) -> None:
    long = [f"<p id='{'k' * 3000}{n}'><b>{n}</b></p>" for n in range(3)]
    past.site.says("/", "".join(long))
    text = """
manifest: html
name: rows
start: {site}/
key: '@id'
items: {{elements: p}}
fields: {{name: b}}
"""
    await past.run(text)

    assert counts(await past.again()) == {"same": 3}
    assert counts(await past.again(text.replace("name: b", "name: i"))) == {"changed": 3}


async def test_a_job_that_is_not_finished_is_not_called_the_same(past: Past) -> None:
    past.site.says("/p/1", status=503, headers={"Retry-After": "900"})
    text = """
manifest: html
name: quotes
start: ['{site}/p/0', '{site}/p/1']
fields: {{author: .author}}
"""
    job = await past.run(text, budget={"seconds": 1})
    result = await past.again()

    assert job.state.value != "complete"
    assert result.exit_code == 3
    assert counts(result)["same"] == 1
