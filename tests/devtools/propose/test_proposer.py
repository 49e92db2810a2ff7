"""Manifests proposed for sites that nobody here has written a selector for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longline.config.job_spec import make_spec
from longline.config.settings import load_settings
from longline.core.errors import UnexpectedShape
from longline.core.model import JobState
from longline.devtools.check import Checks, check_source
from longline.devtools.propose.proposal import ItemKind, Proposal, manifest_text
from longline.devtools.propose.proposer import Proposer
from longline.devtools.session import NO_SOURCE, open_page_chain, open_session, session_spec
from longline.http.errors import RobotsDisallowed
from longline.orchestrator import Orchestrator
from longline.sandbox.sites.generated import Generated
from longline.sandbox.web import PracticeWeb, WebOptions
from longline.storage.query import RecordQuery
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

READABLE = frozenset({"en", "de", "fr"})
"""Languages whose amounts and dates can be read."""


async def proposed(home: Path, clock: VirtualClock, url: str) -> Proposal:
    spec = make_spec({"source": NO_SOURCE})
    async with open_page_chain(load_settings(home=home), spec, clock) as link:
        proposer = Proposer(link, url, clock=clock)
        return await proposer.best(await proposer.survey())


async def written(home: Path, clock: VirtualClock, url: str) -> Path:
    proposal = await proposed(home, clock, url)
    path = home / f"{proposal.name}.yaml"
    path.write_text(manifest_text(proposal), "utf-8")
    return path


async def checked(home: Path, clock: VirtualClock, path: Path) -> Checks:
    async with open_session(load_settings(home=home), session_spec(str(path)), clock) as bench:
        return await check_source(bench, clock)


async def collected(home: Path, clock: VirtualClock, path: Path) -> list[dict[str, Any]]:
    async with Orchestrator(home=home, clock=clock) as longline:
        report = await longline.execute(str(path))
        rows = await longline.store.records.list(RecordQuery(job=report.job, limit=1000))
    assert report.state is JobState.COMPLETE
    return [row["data"] for row in rows]


def amounts(record: dict[str, Any]) -> list[float]:
    return [value["amount"] for value in record.values() if isinstance(value, dict)]


@pytest.mark.parametrize("number", range(1, 25))
async def test_a_generated_site_is_collected_whole_without_an_editor(
    tmp_path: Path, clock: VirtualClock, number: int
) -> None:
    async with PracticeWeb(WebOptions(items=1), clock=clock) as web:
        path = await written(tmp_path, clock, f"{web.url}/generated/{number}/")
        checks = await checked(tmp_path, clock, path)
        records = await collected(tmp_path, clock, path)

    truth = Generated().truth(number)["entries"]
    language = Generated().look(number).language
    assert checks.exit_code == 0
    assert len(records) == len(truth)
    by_title = {record["title"]: record for record in records}
    for entry in truth:
        record = by_title[entry["title"]]
        assert {entry["code"], entry["text"]} <= {str(value) for value in record.values()}
        if language in READABLE:
            assert amounts(record) == [entry["price"]]
            assert entry["added"] in record.values()


SHOP = """<html lang="de-DE"><body>
<nav><ul>{menu}</ul></nav>
<div class="css-1x9k2">{cards}</div>
<a class="sc-bdVaJa" href="/list?page=2">Weiter</a>
</body></html>"""
CARD = """<div class="css-8zq1p product"><a href="/brand/{brand}">Marke</a>
<h3><a href="/p/{n}">Ding {n}</a></h3><span class="price">{n},50 €</span></div>"""
LD = """{{"@context": "https://schema.org", "@type": "Product", "name": "Ding {n}", "sku": "00{n}",
"offers": {{"@type": "Offer", "price": "{n}.50", "priceCurrency": "EUR"}},
"datePublished": "2026-03-0{n}"}}"""
DETAIL = """<html lang="de-DE"><head><script type="application/ld+json">{ld}</script>
<meta property="og:image" content="https://pics.test/{n}.jpg">
<meta name="description" content="Alles ueber Ding {n}"></head>
<body><nav><a class="home" href="/">Start {n}</a></nav>
<h1 class="css-77aa1">Ding {n}</h1><p class="slogan">Immer gut</p>
<table><tr><th>Gewicht</th><td>{n},5</td></tr><tr><th>Stand</th><td>0{n}.03.2026</td></tr></table>
</body></html>"""


def fill_shop(site: ScriptedSite) -> None:
    menu = "".join(f'<li><a href="/c/{n}">Kategorie {n}</a></li>' for n in range(12))
    cards = "".join(CARD.format(n=n, brand=n % 2) for n in range(1, 7))
    html = {"content-type": "text/html"}
    site.says("/list", SHOP.format(menu=menu, cards=cards), headers=html)
    for n in range(1, 7):
        site.says(f"/p/{n}", DETAIL.format(n=n, ld=LD.format(n=n)), headers=html)


async def test_items_are_distinguished_from_menus_and_brands(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    fill_shop(site)

    proposal = await proposed(tmp_path, clock, f"{site.url}/list")

    group = proposal.candidate.group
    assert proposal.candidate.kind is ItemKind.PAGES
    assert group is not None
    assert group.link is not None
    assert group.link.addresses == [f"{site.url}/p/{n}" for n in range(1, 7)]
    assert (group.selector, group.link.css) == ("div.product", "h3 a")
    assert proposal.locale == "de-DE"


async def test_selectors_have_no_generated_names(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    fill_shop(site)

    proposal = await proposed(tmp_path, clock, f"{site.url}/list")

    text = manifest_text(proposal)
    assert "css-" not in text
    assert "sc-" not in text
    assert proposal.pages == {"kind": "next", "css": 'a:lexbor-contains("Weiter")@href'}


async def test_fields_come_from_json_ld_tables_and_meta(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    fill_shop(site)

    proposal = await proposed(tmp_path, clock, f"{site.url}/list")

    fields = {one.name: (dict(one.place), one.kind) for one in proposal.fields}
    assert fields == {
        "title": ({"css": "h1"}, None),
        "sku": ({"json_ld": "Product.sku"}, None),
        "offers_price": ({"json_ld": "Product.offers.price"}, "number"),
        "offers_price_currency": ({"json_ld": "Product.offers.priceCurrency"}, None),
        "date_published": ({"json_ld": "Product.datePublished"}, "date"),
        "gewicht": ({"css": 'th:lexbor-contains("Gewicht") + td'}, "number"),
        "stand": ({"css": 'th:lexbor-contains("Stand") + td'}, "date"),
        "description": ({"css": 'meta[name="description"]@content'}, None),
        "image": ({"css": 'meta[property="og:image"]@content'}, None),
    }


async def test_a_proposed_manifest_reads_the_proposed_values(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    fill_shop(site)
    path = await written(tmp_path, clock, f"{site.url}/list")

    (check,) = (await checked(tmp_path, clock, path)).items

    assert check.exit_code == 0
    assert check.data["gewicht"] == 1.5
    assert check.data["stand"] == "2026-03-01"
    assert check.data["sku"] == "001"
    assert check.data["offers_price"] == 1.5  # written for programs, on a German page


async def test_elements_without_pages_of_their_own_are_items(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    quote = '<div class="quote"><p class="text">Satz {n}</p><small class="by">Wer {n}</small></div>'
    body = "".join(quote.format(n=n) for n in range(8))
    site.says("/", f"<html><body>{body}</body></html>", headers={"content-type": "text/html"})
    path = await written(tmp_path, clock, f"{site.url}/")

    records = await collected(tmp_path, clock, path)

    assert sorted(record["text"] for record in records) == [f"Satz {n}" for n in range(8)]
    assert records[0].keys() == {"text", "by"}


async def test_several_of_a_kind_are_a_list_even_where_the_first_item_has_none(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    tags = ["", *(f'<a class="tag">t{n}</a><a class="tag">u{n}</a>' for n in range(1, 8))]
    quote = '<div class="quote"><p class="text">Satz {n}</p><div class="tags">{tags}</div></div>'
    body = "".join(quote.format(n=n, tags=tags[n]) for n in range(8))
    site.says("/", f"<html><body>{body}</body></html>", headers={"content-type": "text/html"})
    path = await written(tmp_path, clock, f"{site.url}/")

    records = await collected(tmp_path, clock, path)

    by_text = {record["text"]: record["tag"] for record in records}
    assert by_text["Satz 4"] == ["t4", "u4"]
    assert not by_text["Satz 0"]


async def test_a_page_without_a_list_is_one_item(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    page = "<html><body><h1>One</h1><dl><dt>Size</dt><dd>12</dd></dl></body></html>"
    site.says("/one", page, headers={"content-type": "text/html"})
    path = await written(tmp_path, clock, f"{site.url}/one")

    (record,) = await collected(tmp_path, clock, path)

    assert record == {"title": "One", "size": 12}


async def test_other_content_than_html_and_json_is_refused(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    site.says("/data", "a,b", headers={"content-type": "text/csv"})

    with pytest.raises(UnexpectedShape, match="text/csv"):
        await proposed(tmp_path, clock, f"{site.url}/data")


async def test_robots_txt_is_obeyed(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    site.says("/robots.txt", "User-agent: *\nDisallow: /\n")

    with pytest.raises(RobotsDisallowed):
        await proposed(tmp_path, clock, f"{site.url}/list")
