"""The pages of sources: list, one source, run, check, accept."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from longline.storage.access import Role
from longline.storage.jobs import NewJob
from tests.server.web.conftest import Dashboard

MANIFEST = """\
manifest: html
name: {name}
about: "<script>alert(1)</script> quotes"
start: {url}
items:
  elements: div.quote
fields:
  text: span.text
"""
HOSTILE = "<img src=x onerror=alert(1)>\"'\x07\x1b[31m" + "x" * 5000


def write_manifest(dashboard: Dashboard, name: str = "quotes", url: str = "http://x.test/") -> Path:
    [folder] = dashboard.settings.sources
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(MANIFEST.format(name=name, url=url))
    return path


async def test_a_source_that_never_ran_is_listed(dashboard: Dashboard) -> None:
    write_manifest(dashboard)

    answer = await dashboard.get("/sources")

    assert answer.status == 200
    assert 'href="/sources/quotes"' in answer.text
    assert "<script>alert" not in answer.text


async def test_an_invalid_file_is_listed_with_its_position(dashboard: Dashboard) -> None:
    write_manifest(dashboard).write_text("manifest: html\nname: <b>\n")

    answer = await dashboard.get("/sources")

    assert answer.status == 200
    assert "line 2, column" in answer.text
    assert "<b>" not in answer.text


async def test_a_source_has_a_page(dashboard: Dashboard) -> None:
    write_manifest(dashboard)

    answer = await dashboard.get("/sources/quotes")

    assert answer.status == 200
    assert "elements: div.quote" in answer.text
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize("name", ["nothing", "..%2f..%2fetc", "%00", "new%2f..", HOSTILE])
async def test_an_unknown_source_is_not_found(dashboard: Dashboard, name: str) -> None:
    answer = await dashboard.get(f"/sources/of?name={quote(name)}")

    assert answer.status == 404
    assert "<img" not in answer.text


async def test_hostile_names_of_sources_are_text(dashboard: Dashboard) -> None:
    await dashboard.store.jobs.create(NewJob(HOSTILE, {"source": HOSTILE}, {}, 1.0))

    listed = await dashboard.get("/sources")
    shown = await dashboard.get(f"/sources/of?name={quote(HOSTILE)}")

    assert (listed.status, shown.status) == (200, 200)
    assert "<img" not in listed.text + shown.text


async def test_a_known_source_is_submitted(dashboard: Dashboard) -> None:
    path = write_manifest(dashboard)

    answer = await dashboard.post(
        "/sources/run", {"source": "quotes", "limit": "3", "rate": "0.5"}, allow_redirects=False
    )

    [launch] = await dashboard.store.launches.list()
    assert answer.status == 303
    assert (launch.name, launch.spec["limit"], launch.spec["rate"]) == ("quotes", 3, 0.5)
    assert launch.spec["source"] == str(path)


@pytest.mark.parametrize("source", ["/etc/passwd", "os:system", "{path}", ""])
async def test_only_sources_by_name_are_submitted(dashboard: Dashboard, source: str) -> None:
    path = write_manifest(dashboard)

    answer = await dashboard.post("/sources/run", {"source": source.format(path=path)})

    assert answer.status == 404
    assert await dashboard.store.launches.list() == []


@pytest.mark.parametrize("field", ["limit", "rate"])
async def test_a_malformed_parameter_is_refused(dashboard: Dashboard, field: str) -> None:
    write_manifest(dashboard)

    answer = await dashboard.post("/sources/run", {"source": "quotes", field: "<b>"})

    assert answer.status == 422
    assert "<b>" not in answer.text


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("/sources/check?name=quotes", "/sources/quotes"),
        ("/sources/check?name=check", "/sources/of?name=check"),
        ("/sources/check?name=//evil.example", "/sources/of?name=%2F%2Fevil.example"),
        ("/sources/check", "/sources"),
        ("/sources/save", "/sources/new"),
    ],
)
async def test_a_page_of_a_form_loaded_again_leads_on(
    dashboard: Dashboard, path: str, page: str
) -> None:
    answer = await dashboard.get(path, allow_redirects=False)

    assert (answer.status, answer.headers["Location"]) == (303, page)


async def test_a_check_is_posted_to_an_address_with_the_source(dashboard: Dashboard) -> None:
    write_manifest(dashboard)

    answer = await dashboard.get("/sources/quotes")

    assert 'action="/sources/check?name=quotes"' in answer.text


async def test_a_reader_cannot_run_a_source(dashboard: Dashboard) -> None:
    write_manifest(dashboard)

    answer = await dashboard.api("POST", "/sources/run", role=Role.READ, data={"source": "quotes"})

    assert answer.status == 403


async def test_drift_that_does_not_exist_is_not_accepted(dashboard: Dashboard) -> None:
    answer = await dashboard.post("/sources/accept", {"source": "quotes"})

    assert answer.status == 409
