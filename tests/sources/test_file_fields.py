"""Files as values of records: `visit.download`, and fields of manifests, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from longline.core.errors import StoreError
from longline.core.model import Item, JobState
from longline.http.errors import BadAnswer
from longline.orchestrator import Orchestrator
from longline.sources.base import Options, Source, Visit, layer
from tests.http.served_files import PNG, serve, sha256
from tests.scripted_site import ScriptedSite
from tests.sources.manifested import manifest_of
from tests.sources.scripted import ScriptedWeb
from tests.virtual import VirtualClock

FILES = f"{__name__}:Files"

PAGES = """
manifest: html
name: shop
rate: unlimited
start: {site}/list
items: a.item
key: {{url: "/p/(.+)"}}
fields:
  title: h1
  photo: {{css: img@src, type: image}}
  papers: {{css: a.paper@href, type: file, many: true}}
"""
API = """
manifest: api
name: goods
base_url: {site}
rate: unlimited
endpoints:
  goods:
    path: /goods
    records: "@"
    key: id
    fields:
      id: id
      photo: {{path: photo, type: image}}
"""


def reference(content: bytes, url: str, suffix: str = ".png", kind: str = "image/png") -> Any:
    digest = sha256(content)
    return {
        "path": f"{digest[:2]}/{digest[2:4]}/{digest}{suffix}",
        "sha256": digest,
        "bytes": len(content),
        "type": kind,
        "name": url.rpartition("/")[2],
        "source_url": url,
    }


async def collected(source: Any, home: Path, clock: VirtualClock, **spec: Any) -> tuple[Any, Any]:
    """Run a source; return the report and the records by key."""
    async with Orchestrator(source, home=home, clock=clock, **spec) as orchestrator:
        report = await orchestrator.execute()
        keys = [row["key"] for row in await orchestrator.store.queue.rows(report.job)]
        finished = await orchestrator.store.queue.finished(report.job)
        stored = {row["key"] for row in finished if row["state"] in ("stored", "unchanged")}
        records = {key: await orchestrator.store.records.get(key) for key in keys if key in stored}
    return report, records


@pytest.fixture
def shop(site: ScriptedSite) -> ScriptedSite:
    """A shop with two items: one with files, one whose files are missing."""
    site.says("/robots.txt", "")
    site.says("/list", '<a class="item" href="/p/1">1</a><a class="item" href="/p/2">2</a>')
    papers = '<a class="paper" href="/a.pdf">A</a><a class="paper" href="/b.pdf">B</a>'
    site.says("/p/1", f'<h1>One</h1><img src="/one.png">{papers}')
    site.says("/p/2", '<h1>Two</h1><img src="/missing.png">')
    serve(site, "/one.png", PNG)
    serve(site, "/a.pdf", b"%PDF-1 a", type="application/pdf")
    return site


def manifest(tmp_path: Path, text: str, site: ScriptedSite) -> str:
    path = tmp_path / "source.yaml"
    path.write_text(text.format(site=site.url))
    return str(path)


async def test_fields_of_pages_are_downloaded(
    shop: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    report, records = await collected(manifest(tmp_path, PAGES, shop), tmp_path / "home", clock)

    one, two = records["1"], records["2"]
    assert report.state is JobState.COMPLETE
    assert one["data"]["photo"] == reference(PNG, f"{shop.url}/one.png")
    pdf = reference(b"%PDF-1 a", f"{shop.url}/a.pdf", ".pdf", "application/pdf")
    assert one["data"]["papers"] == [pdf, None]
    assert two["data"]["photo"] is None
    notes = {note["field"]: note["text"] for note in one["about"]["notes"]}
    assert "/b.pdf returned 404" in notes["papers[1]"]
    stored = tmp_path / "home" / "files" / one["data"]["photo"]["path"]
    assert stored.read_bytes() == PNG


async def test_robots_txt_and_budgets_apply_to_files(
    shop: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    shop.says("/robots.txt", "User-agent: *\nDisallow: /a.pdf")
    report, records = await collected(
        manifest(tmp_path, PAGES, shop), tmp_path / "home", clock, budget={"bytes": 1_000_000}
    )

    notes = {note["field"]: note["text"] for note in records["1"]["about"]["notes"]}
    assert "robots.txt" in notes["papers[0]"]
    assert shop.hits["/a.pdf"] == 0
    assert report.as_dict()["requests"] == 7

    report, _ = await collected(
        manifest(tmp_path, PAGES, shop), tmp_path / "other", clock, budget={"bytes": len(PNG)}
    )
    assert report.state is not JobState.COMPLETE


async def test_a_required_file_that_fails_fails_its_item(
    shop: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    text = PAGES.replace("type: image}}", "type: image, required: true}}")

    report, records = await collected(manifest(tmp_path, text, shop), tmp_path / "home", clock)

    assert list(records) == ["1"]
    assert report.state is not JobState.COMPLETE


async def test_fields_of_an_api_are_downloaded(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    goods = '[{"id": 1, "photo": "/one.png"}, {"id": 2, "photo": "no"}, {"id": 3, "photo": 5}]'
    site.says("/goods", goods, headers={"Content-Type": "application/json"})
    serve(site, "/one.png", PNG)

    _, records = await collected(manifest(tmp_path, API, site), tmp_path / "home", clock)

    assert records["1"]["data"]["photo"] == reference(PNG, f"{site.url}/one.png")
    assert records["2"]["data"]["photo"] is None
    assert records["3"]["data"]["photo"] is None


async def test_files_of_details_and_embedded_records_are_downloaded(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    text = """
manifest: api
name: goods
base_url: {site}
rate: unlimited
endpoints:
  goods:
    path: /goods
    records: "@"
    key: id
    fields: {{id: id}}
    detail: good
    embed: {{papers: papers}}
  good:
    path: /goods/{{parent.id}}
    records: "@"
    fields: {{photo: {{path: photo, type: image}}}}
  papers:
    path: /goods/{{parent.id}}/papers
    records: "@"
    fields: {{file: {{path: link, type: file}}}}
"""
    as_json = {"Content-Type": "application/json"}
    site.says("/goods", '[{"id": 1}]', headers=as_json)
    site.says("/goods/1", '{"photo": "/one.png"}', headers=as_json)
    site.says("/goods/1/papers", '[{"link": "/a.pdf"}, {"link": "/no.pdf"}]', headers=as_json)
    serve(site, "/one.png", PNG)
    serve(site, "/a.pdf", b"%PDF-1 a", type="application/pdf")

    _, records = await collected(manifest(tmp_path, text, site), tmp_path / "home", clock)

    data, about = records["1"]["data"], records["1"]["about"]
    assert data["photo"] == reference(PNG, f"{site.url}/one.png")
    pdf = reference(b"%PDF-1 a", f"{site.url}/a.pdf", ".pdf", "application/pdf")
    assert data["papers"] == [{"file": pdf}, {"file": None}]
    assert [note["field"] for note in about["notes"]] == ["papers[1].file"]


async def test_files_of_elements_and_nested_objects_are_downloaded(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    site.says("/list", '<li><b>One</b><p><img src="one.png"></p><p><img src="data:x"></p></li>')
    serve(site, "/one.png", PNG)
    text = """
manifest: html
name: shop
rate: unlimited
start: {site}/list
items: {{elements: li}}
key: b
fields:
  rooms: {{css: p, many: true, fields: {{photo: {{css: img@src, type: image}}}}}}
"""

    _, records = await collected(manifest(tmp_path, text, site), tmp_path / "home", clock)

    (record,) = records.values()
    photo = reference(PNG, f"{site.url}/one.png")
    assert record["data"]["rooms"] == [{"photo": photo}, {"photo": None}]


class FileOptions(Options):
    site: str
    required: bool = False


class Files(Source):
    """Downloads one file per item."""

    name = "files"
    rate = None
    Options = FileOptions

    async def discover(self, visit: Visit) -> AsyncIterator[Item]:
        del visit
        for name in ("one", "busy"):
            yield Item(name, f"{self.options.site}/{name}.png")

    @layer()
    async def file(self, visit: Visit) -> dict[str, Any]:
        file = await visit.download(
            visit.item.url, field="photo", required=self.options.required, image=True
        )
        return {"photo": file}


async def test_a_host_that_asks_for_a_pause_is_waited_for(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    serve(site, "/one.png", PNG)
    served = serve(site, "/busy.png", PNG + b"2")
    turns = [429, 200]

    async def busy(request: web.Request) -> web.StreamResponse:
        if turns.pop(0) == 429:
            return web.Response(status=429, headers={"Retry-After": "90"})
        return await served(request)

    site.answers["/busy.png"] = busy

    report, records = await collected(FILES, tmp_path, clock, options={"site": site.url})

    assert report.state is JobState.COMPLETE
    assert records["busy"]["data"]["photo"]["sha256"] == sha256(PNG + b"2")


async def test_a_folder_that_cannot_be_written_ends_the_run(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("LONGLINE_FILES", str(tmp_path / "taken"))
    serve(site, "/one.png", PNG)

    with pytest.raises(StoreError, match="taken"):
        await collected(FILES, tmp_path / "home", clock, options={"site": site.url})


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("{type: file}", "its place on the page is missing"),
        ("{css: img@src, type: file, default: none}", "a file has no default"),
        ("{css: h1, type: screenshot}", "a screenshot is one of the whole page: remove css"),
        ("{type: pdf}", "a pdf needs a browser"),
    ],
)
def test_a_file_field_that_cannot_work_is_refused(field: str, problem: str) -> None:
    text = f"start: https://a.test\nfields: {{title: h1, it: {field}}}"

    with pytest.raises(ValidationError, match=problem):
        manifest_of(text)


async def test_without_a_chain_that_stores_files_there_is_an_error(clock: VirtualClock) -> None:
    visit = Visit(ScriptedWeb({"http://a.test/x": "text"}), clock)

    with pytest.raises(BadAnswer):
        await visit.download("http://a.test/x")
