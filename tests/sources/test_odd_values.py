"""Values that are hard to read or to store: each costs its record, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from longline.core.errors import UnexpectedShape
from longline.core.json import read_json
from longline.core.model import ItemState
from longline.http.messages import Page
from longline.orchestrator import Orchestrator
from longline.sources.html.sitemaps import read_sitemap
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

MANIFEST = """
manifest: api
name: odd
rate: unlimited
base_url: {url}
endpoints: {{things: {{path: /things, key: id}}}}
"""
STORED = {
    "an integer of 309 digits": "9" * 309,
    "an integer of 5,000 digits": "9" * 5_000,
    "a decimal beyond all": "1e999",
    "a negative one": "-1e999",
    "no number": "NaN",
    "infinity": "-Infinity",
    "half a character": r'"\ud800"',
    "half a character and no number": r'["\ud800", NaN]',
    "a zero byte": r'"a\u0000b"',
    "the same name twice": '{"a": 1, "a": 2}',
    "a value of 200 levels": "[" * 200 + "]" * 200,
}
QUARANTINED = {
    "a value of 300 levels": "[" * 300 + "]" * 300,
    "a value of 900 levels": "[" * 900 + "]" * 900,
    "objects of 900 levels": '{"a":' * 900 + "1" + "}" * 900,
}


async def states_of(value: str, site: ScriptedSite, home: Path, clock: VirtualClock) -> list[str]:
    """Return the states of three records, of which the second has this value."""
    text = f'[{{"id": 1, "v": 1}}, {{"id": 2, "v": {value}}}, {{"id": 3, "v": 3}}]'

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=text.encode(), content_type="application/json")

    site.answers["/things"] = answer
    path = home / "odd.yaml"
    path.write_text(MANIFEST.format(url=site.url))
    async with Orchestrator(str(path), home=home, clock=clock) as orchestrator:
        report = await orchestrator.execute()
        rows = await orchestrator.store.queue.finished(report.job)
    return [row["state"] for row in sorted(rows, key=lambda row: str(row["key"]))]


@pytest.mark.parametrize("name", STORED)
async def test_an_odd_value_is_stored(
    name: str, site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    states = await states_of(STORED[name], site, tmp_path, clock)

    assert states == [ItemState.STORED] * 3


@pytest.mark.parametrize("name", QUARANTINED)
async def test_a_value_too_deep_to_store_costs_its_record(
    name: str, site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    states = await states_of(QUARANTINED[name], site, tmp_path, clock)

    assert states == [ItemState.STORED, ItemState.QUARANTINED, ItemState.STORED]


@pytest.mark.parametrize("text", ["9" * 309, "1e999", "-1e999", "NaN", "Infinity", "-Infinity"])
def test_a_number_that_cannot_be_held_is_its_text(text: str) -> None:
    assert read_json(f'{{"a": {text}, "b": 1.5}}') == {"a": text, "b": 1.5}


@pytest.mark.parametrize(
    "body",
    [
        b'<?xml version="1.0" encoding="utf-7"?><urlset/>',
        b'<?xml version="1.0" encoding="undefined"?><urlset/>',
        b'<?xml version="1.0" encoding="no-such"?><urlset/>',
        b"\xff\xfe\x00",
        b"<urlset>" * 50_000,
    ],
)
def test_a_sitemap_that_cannot_be_read_is_an_unexpected_shape(body: bytes) -> None:
    with pytest.raises(UnexpectedShape):
        read_sitemap(Page("http://site.test/sitemap.xml", 200, {}, body))
