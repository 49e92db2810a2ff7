"""A random manifest applied to archived pages gives the records that a fresh run gives."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from longline.analysis.reextract import ReextractStatus
from tests.analysis.archived_manifests import Past
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

ELEMENTS = """
manifest: html
name: quotes
start: {site}/
may_be_empty: true
pages: .next a
KEY
items: {{elements: 'ITEMS'}}
fields: {{FIELDS}}
"""
RECORDS = """
manifest: api
name: quotes
base_url: {site}
may_be_empty: true
endpoints:
  quotes:
    path: /api
    records: 'ITEMS'
    KEY
    pagination: {{kind: cursor, path: next, parameter: after}}
    fields: {{FIELDS}}
"""
CHOICES = {
    ELEMENTS: {
        "KEY": ("", "key: '@id'", "key: .author", "key: .text"),
        "ITEMS": ("div.quote", "div.a", "div.quote:nth-child(odd)", "div.quote > b"),
        "FIELDS": (
            "text: .text",
            "text: .text, author: .author",
            "text: {{css: .full, required: true}}",
        ),
    },
    RECORDS: {
        "KEY": ("key: id", "key: sku", "key: name"),
        "ITEMS": ("items", "items[?id>`2`]"),
        "FIELDS": ("id: id, n: name", "id: id", "n: {{path: title, required: true}}"),
    },
}


def manifest(random: Random, template: str) -> str:
    text = template
    for word, choices in CHOICES[template].items():
        text = text.replace(word, random.choice(choices))
    return text


def element(random: Random, number: int) -> str:
    """Return an element: its text, id or author may be those of another, a part may be missing."""
    text = random.choice(["same text", f"text {number}", f"text {number % 3}"])
    name = number if random.random() < 0.9 else number % 4
    full = f'<i class="full">F{number}</i>' if random.random() < 0.8 else ""
    return (
        f'<div class="quote {random.choice("ab")}" id="q{name}"><b class="text">{text}</b>'
        f'<i class="author">A{number % 5}</i>{full}</div>'
    )


def record(random: Random, number: int) -> dict[str, Any]:
    title = {"title": f"t{number}"} if random.random() < 0.8 else {}
    name = number if random.random() < 0.9 else 1
    return {"id": name, "sku": f"s{number % 6}", "name": f"n{number % 4}", **title}


def fill(site: ScriptedSite, random: Random) -> None:
    """Give the site three pages of elements and an API of twelve records."""
    for page in range(3):
        count = random.randint(1, 6)
        body = "".join(element(random, random.randint(0, 20)) for _ in range(count))
        onward = f'<p class="next"><a href="/{page + 1}">next</a></p>' if page < 2 else ""
        site.says(f"/{page or ''}", f"<main>{body}</main>{onward}")
    records = [record(random, number) for number in range(12)]

    async def api(request: web.Request) -> web.StreamResponse:
        page = int(request.query.get("after", 0))
        some = records[page * 4 : page * 4 + 4]
        return web.json_response({"items": some, "next": page + 1 if page < 2 else None})

    site.answers["/api"] = api


@pytest.mark.parametrize("template", [ELEMENTS, RECORDS], ids=["elements", "records"])
@pytest.mark.parametrize("seed", range(4))
async def test_written_records_equal_those_of_a_run(
    seed: int, template: str, tmp_path: Path, site: ScriptedSite, clock: VirtualClock
) -> None:
    random = Random(seed)
    fill(site, random)
    old, new = manifest(random, template), manifest(random, template)
    past, fresh = Past(site, tmp_path / "past", clock), Past(site, tmp_path / "fresh", clock)
    await past.run(old)
    before = await past.records()
    await fresh.run(new)
    wanted = await fresh.records()
    site.hits.clear()

    unchanged = await past.again()
    changed = await past.again(new, write=True)

    assert len(unchanged.of(ReextractStatus.SAME)) == len(before)
    assert unchanged.as_dict()["written"] == 0
    after = await past.records()
    assert {key: after.get(key) for key in wanted} == wanted
    same = [one.key for one in changed.of(ReextractStatus.SAME)]
    assert {key: before[key] for key in same} == {key: wanted[key] for key in same}
