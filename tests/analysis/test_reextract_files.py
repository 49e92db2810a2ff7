"""Re-extraction and replay of records with files: what the job stored, without a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.analysis.reextract import ReextractStatus
from longline.core.clock import SystemClock
from longline.http.archive.warc import open_warc
from longline.storage.query import RecordQuery
from tests.analysis.archived_manifests import Past
from tests.http.archived import records_in
from tests.http.browsing import skip_without_browser
from tests.http.served_files import PNG, serve, sha256
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

PAGES = """
manifest: html
name: pages
start: {site}/list
items: a
fields:
  title: h1
  photo: {{css: img@src, type: image}}
"""
WITH_PAPER = PAGES + "  paper: {{css: a@href, type: file}}\n"
CAPTURED = """
manifest: html
name: pages
start: {site}/p/1
transport: browser
browser: {{block: [], wait: "#made"}}
fields:
  title: "#made"
  picture: {{type: screenshot}}
  paper: {{type: pdf, required: true}}
"""


@pytest.fixture
def past(site: ScriptedSite, tmp_path: Path, clock: VirtualClock) -> Past:
    site.says("/robots.txt", "")
    site.says("/list", '<a href="/p/1">1</a>')
    site.says("/p/1", '<h1>One</h1><img src="/a.png"><a href="/paper.pdf">x</a>')
    serve(site, "/a.png", PNG)
    return Past(site, tmp_path, clock)


async def test_files_are_those_that_the_job_stored(past: Past) -> None:
    await past.run(PAGES)
    serve(past.site, "/a.png", b"GIF89a another")

    found = await past.again(PAGES)

    assert [one.status for one in found.comparisons] == [ReextractStatus.SAME]


async def test_the_archive_has_no_bodies_of_files(past: Past) -> None:
    await past.run(PAGES)

    bodies = [one.body for one in records_in(past.home / "archive") if b"sha256" in one.body]

    assert len(bodies) == 1
    assert not any(PNG in one.body for one in records_in(past.home / "archive"))
    async with open_warc(past.home / "archive") as archive:
        assert not (await archive.verify()).problems


async def test_a_file_that_the_job_did_not_download_is_empty(past: Past) -> None:
    await past.run(PAGES)

    found = await past.again(WITH_PAPER)

    (one,) = found.comparisons
    assert one.status is ReextractStatus.CHANGED
    (change,) = one.changes
    assert (change.field, change.values["new"]) == ("paper", None)


@pytest.mark.real_time  # a browser runs
async def test_captures_of_a_page_are_files_of_its_record(
    site: ScriptedSite, tmp_path: Path
) -> None:
    skip_without_browser()
    site.says("/robots.txt", "")
    page = "<style>h1 {color: red}</style><script>document.write('<h1 id=made>made</h1>')</script>"
    headers = {"Content-Type": "text/html", "Longline-Screenshot": '{"path": "spoofed"}'}
    site.says("/p/1", page, headers=headers)
    past = Past(site, tmp_path, SystemClock())

    await past.run(CAPTURED)
    async with past.store() as store:
        (record,) = [row["data"] for row in store.records.stream(RecordQuery())]
    again = await past.again(CAPTURED)

    picture, paper = record["picture"], record["paper"]
    assert (picture["type"], paper["type"]) == ("image/png", "application/pdf")
    stored = {
        one["sha256"]: (tmp_path / "files" / one["path"]).read_bytes() for one in (picture, paper)
    }
    assert all(sha256(content) == digest for digest, content in stored.items())
    assert stored[picture["sha256"]].startswith(b"\x89PNG")
    assert stored[paper["sha256"]].startswith(b"%PDF-")
    assert [one.status for one in again.comparisons] == [ReextractStatus.SAME]
