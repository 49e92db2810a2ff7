"""Files that are downloaded and stored by their content, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from longline.core.errors import Gone
from longline.core.model import Usage
from longline.http.errors import BadAnswer, BodyCut, TimedOut
from longline.http.files.receiving import Receiving, sweep
from longline.http.files.store import (
    FilesFull,
    FilesUnwritable,
    FolderStore,
    is_place,
    name_of,
    suffix_of,
    type_of,
)
from longline.http.messages import FILE_TYPE, Page, Request
from longline.http.middleware.files import FilesMiddleware
from tests.http.served_files import LONG, PNG, Downloads, downloads, serve, sha256
from tests.scripted_site import Answer, ScriptedSite
from tests.small_disk import small_disk
from tests.virtual import VirtualClock


@pytest.fixture
async def files(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Downloads]:
    async with downloads(tmp_path / "files", clock) as opened:
        yield opened


async def test_a_file_is_stored_under_its_content(site: ScriptedSite, files: Downloads) -> None:
    serve(site, "/a/photo.png", PNG)
    usage = Usage()

    page = await files.get(f"{site.url}/a/photo.png?size=1", usage=usage)

    digest = sha256(PNG)
    assert page.headers["content-type"] == FILE_TYPE
    assert page.json == {
        "path": f"{digest[:2]}/{digest[2:4]}/{digest}.png",
        "sha256": digest,
        "md5": page.json["md5"],
        "bytes": len(PNG),
        "type": "image/png",
        "name": "photo.png",
    }
    assert (files.folder / page.json["path"]).read_bytes() == PNG
    assert (usage.received_bytes, files.drafts) == (len(PNG), [])


async def test_the_same_content_is_stored_once(site: ScriptedSite, files: Downloads) -> None:
    serve(site, "/a.png", PNG)
    serve(site, "/b.bin", PNG, type="application/x-other")

    first = await files.get(f"{site.url}/a.png")
    second = await files.get(f"{site.url}/b.bin")

    assert first.json["path"] == second.json["path"]
    assert len(files.stored) == 1


async def test_a_url_is_requested_once_in_a_job(site: ScriptedSite, files: Downloads) -> None:
    served = serve(site, "/a.png", PNG)

    await files.get(f"{site.url}/a.png")
    await files.get(f"{site.url}/a.png#top")

    assert len(served.requests) == 1


async def test_a_later_job_validates_what_is_here(site: ScriptedSite, files: Downloads) -> None:
    served = serve(site, "/a.png", PNG)
    first = await files.get(f"{site.url}/a.png")

    again = await files.get(f"{site.url}/a.png", job="job-2")
    served.content, served.etag = PNG + b"!", '"2"'
    changed = await files.get(f"{site.url}/a.png", job="job-3")

    assert again.json == first.json
    assert changed.json["sha256"] == sha256(PNG + b"!")
    assert [one.headers.get("If-None-Match") for one in served.requests] == [None, '"1"', '"1"']
    assert served.sent == 2 * len(PNG) + 1


async def test_a_validator_belongs_to_its_content(site: ScriptedSite, files: Downloads) -> None:
    served = serve(site, "/a.png", PNG)
    await files.get(f"{site.url}/a.png")
    served.content, served.etag = PNG + b"!", None
    await files.get(f"{site.url}/a.png", job="job-2")

    await files.get(f"{site.url}/a.png", job="job-3")

    assert [one.headers.get("If-None-Match") for one in served.requests] == [None, '"1"', None]


async def test_a_file_that_was_deleted_is_downloaded_again(
    site: ScriptedSite, files: Downloads
) -> None:
    served = serve(site, "/a.png", PNG)
    await files.get(f"{site.url}/a.png")
    files.stored[0].unlink()

    await files.get(f"{site.url}/a.png")

    assert len(served.requests) == 2
    assert len(files.stored) == 1


async def test_a_long_file_continues_where_it_broke_off(
    site: ScriptedSite, files: Downloads
) -> None:
    served = serve(site, "/long", LONG, type="video/mp4", cuts=[1_500_000])
    with pytest.raises(BodyCut):
        await files.get(f"{site.url}/long")

    page = await files.get(f"{site.url}/long")

    first, second = served.requests
    assert "Range" not in first.headers
    assert second.headers["If-Range"] == '"1"'
    assert int(second.headers["Range"].removeprefix("bytes=").rstrip("-")) > 1_000_000
    assert (page.json["sha256"], page.json["bytes"]) == (sha256(LONG), len(LONG))
    assert (page.status, files.drafts) == (200, [])


async def test_a_file_that_has_changed_starts_again(site: ScriptedSite, files: Downloads) -> None:
    served = serve(site, "/long", LONG, cuts=[1_500_000])
    with pytest.raises(BodyCut):
        await files.get(f"{site.url}/long")
    served.content, served.etag = LONG[::-1], '"2"'

    page = await files.get(f"{site.url}/long")

    assert page.json["sha256"] == sha256(LONG[::-1])
    assert files.drafts == []


async def test_without_validator_nothing_is_continued(site: ScriptedSite, files: Downloads) -> None:
    served = serve(site, "/long", LONG, etag=None, cuts=[1_500_000])
    with pytest.raises(BodyCut):
        await files.get(f"{site.url}/long")

    assert files.drafts == []
    page = await files.get(f"{site.url}/long")

    assert "Range" not in served.requests[1].headers
    assert page.json["sha256"] == sha256(LONG)


async def test_a_range_that_is_refused_starts_again(site: ScriptedSite, files: Downloads) -> None:
    served = serve(site, "/long", LONG, cuts=[1_500_000])
    with pytest.raises(BodyCut):
        await files.get(f"{site.url}/long")
    served.content = LONG[:1_000_500]

    with pytest.raises(BodyCut):
        await files.get(f"{site.url}/long")
    page = await files.get(f"{site.url}/long")

    assert page.json["sha256"] == sha256(LONG[:1_000_500])


async def test_a_declared_length_that_is_too_large_is_refused_at_once(
    site: ScriptedSite, files: Downloads
) -> None:
    served = serve(site, "/long", LONG)

    with pytest.raises(BadAnswer, match=r"2,400,000 bytes or more, .* 2,000,000 \(largest_file\)"):
        await files.get(f"{site.url}/long", largest=2_000_000)

    assert len(served.requests) == 1
    assert (files.stored, files.drafts) == ([], [])


async def test_a_body_without_length_ends_at_the_limit(
    site: ScriptedSite, files: Downloads
) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "video/mp4"})
        await response.prepare(request)
        for _ in range(1000):
            await response.write(bytes(100_000))
        return response

    site.answers["/endless"] = endless

    with pytest.raises(BadAnswer):
        await files.get(f"{site.url}/endless", largest=3_000_000)

    assert (files.stored, files.drafts) == ([], [])


async def test_an_image_must_be_one(site: ScriptedSite, files: Downloads) -> None:
    serve(site, "/a.jpg", b"<h1>Please log in</h1>", type="text/html")
    serve(site, "/b.jpg", b"no picture", type="application/octet-stream")
    serve(site, "/c.jpg", PNG, type="application/octet-stream")

    for path in ("/a.jpg", "/b.jpg"):
        with pytest.raises(BadAnswer):
            await files.get(site.url + path, is_image=True)
    page = await files.get(f"{site.url}/c.jpg", is_image=True)

    assert page.json["type"] == "image/png"
    assert len(files.stored) == 1


@pytest.mark.parametrize(
    ("content", "declared"),
    [
        (b"", "image/png"),
        (b"\n <!DOCTYPE html><p>Please log in</p>", "image/jpeg"),
        (b'{"error": "not found"}', "image/jpeg"),
        (b"%PDF-1.7", "image/png"),
        (b"<html></html>", "image/svg+xml"),
    ],
)
async def test_what_is_only_declared_as_an_image_is_refused(
    content: bytes, declared: str, site: ScriptedSite, files: Downloads
) -> None:
    serve(site, "/a.jpg", content, type=declared)

    with pytest.raises(BadAnswer):
        await files.get(f"{site.url}/a.jpg", is_image=True)

    assert (files.stored, files.drafts) == ([], [])


@pytest.mark.parametrize("job", ["job-1", "job-2"])
async def test_what_was_stored_as_a_file_is_no_image_later(
    site: ScriptedSite, files: Downloads, job: str
) -> None:
    serve(site, "/a.jpg", b"<!DOCTYPE html><p>Please log in</p>", type="image/jpeg")
    await files.get(f"{site.url}/a.jpg")

    with pytest.raises(BadAnswer):
        await files.get(f"{site.url}/a.jpg", job=job, is_image=True)


async def test_a_drawing_in_svg_is_an_image(site: ScriptedSite, files: Downloads) -> None:
    serve(site, "/a.svg", b"<?xml version='1.0'?><svg></svg>", type="image/svg+xml")

    page = await files.get(f"{site.url}/a.svg", is_image=True)

    assert page.json["type"] == "image/svg+xml"


@pytest.mark.parametrize("status", [201, 203, 204, 300])
async def test_a_site_cannot_describe_a_file_itself(
    status: int, site: ScriptedSite, files: Downloads
) -> None:
    headers = {"Content-Type": FILE_TYPE}
    body = None if status == 204 else b'{"path": "../../etc/passwd", "sha256": "0"}'

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers=headers)

    site.answers["/a.png"] = answer

    with pytest.raises(BadAnswer, match=f"status {status}"):
        await files.get(f"{site.url}/a.png")


async def test_a_page_cannot_describe_captures_or_files(
    site: ScriptedSite, files: Downloads
) -> None:
    forged = {"Longline-screenshot": '{"path": "../../etc/passwd"}', "Content-Type": FILE_TYPE}
    site.says("/page", "{}", headers=forged)
    chain = FilesMiddleware(files.inner, files.storage, "job-1")

    page = await chain(Request(f"{site.url}/page"), Usage())

    assert page.files == {}
    assert page.headers.get("content-type") != FILE_TYPE


async def test_a_file_that_was_damaged_is_downloaded_again(
    site: ScriptedSite, files: Downloads
) -> None:
    serve(site, "/a.png", PNG)
    serve(site, "/copy.png", PNG)
    await files.get(f"{site.url}/a.png")
    files.stored[0].write_bytes(PNG[:9])
    await files.get(f"{site.url}/copy.png")
    restored = files.stored[0].read_bytes()
    files.stored[0].write_bytes(b"")

    await files.get(f"{site.url}/a.png")

    assert restored == PNG
    assert [one.read_bytes() for one in files.stored] == [PNG]


async def test_html_and_bodies_in_memory_are_stored(site: ScriptedSite, files: Downloads) -> None:
    serve(site, "/page.html", b"<h1>hello</h1>", type="text/html")

    page = await files.get(f"{site.url}/page.html")

    assert page.json["sha256"] == sha256(b"<h1>hello</h1>")
    assert page.json["path"].endswith(".html")


async def test_redirects_are_followed_and_errors_raised(
    site: ScriptedSite, files: Downloads
) -> None:
    serve(site, "/new.png", PNG)
    site.says("/old.png", status=302, headers={"location": "/new.png"})

    page = await files.get(f"{site.url}/old.png")
    with pytest.raises(Gone):
        await files.get(f"{site.url}/missing.png")

    assert (page.url, page.json["name"]) == (f"{site.url}/new.png", "new.png")


async def test_a_disk_that_is_full_ends_the_run(
    site: ScriptedSite, files: Downloads, tmp_path: Path
) -> None:
    serve(site, "/long", LONG, etag=None)
    with small_disk(tmp_path / "disk") as disk:
        files.folder = disk.path / "files"
        disk.fill()

        with pytest.raises((FilesFull, FilesUnwritable)) as caught:
            await files.get(f"{site.url}/long")

    assert isinstance(caught.value, FilesFull)
    assert str(tmp_path / "disk") in str(caught.value)


async def test_a_folder_that_cannot_be_written_is_named(
    site: ScriptedSite, files: Downloads, tmp_path: Path
) -> None:
    served = serve(site, "/a.png", PNG)
    (tmp_path / "taken").write_text("a file")
    files.folder = tmp_path / "taken"

    with pytest.raises(FilesUnwritable, match=r"taken.*LONGLINE_FILES"):
        await files.get(f"{site.url}/a.png")

    assert served.requests == []


async def test_drafts_of_dead_processes_are_swept(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.prepare()
    for name, age in (("a.12345678.part", 100), ("b.part", 100), ("c.part", 1e6)):
        path = store.drafts / name
        path.write_bytes(b"x")
        stamp = path.stat().st_mtime - age
        os.utime(path, (stamp, stamp))

    assert sweep(store) == 2
    assert [path.name for path in store.drafts.iterdir()] == ["b.part"]


@pytest.mark.parametrize(
    ("url", "disposition", "name"),
    [
        ("http://a.test/b/c.pdf?d=/e.exe", "", "c.pdf"),
        ("http://a.test/%2e%2e%2f%2e%2e%2fetc/passwd", "", "passwd"),
        ("http://a.test/x", 'attachment; filename="../../up.txt"', "up.txt"),
        ("http://a.test/x", "attachment; filename=..\\..\\up.txt", "up.txt"),
        ("http://a.test/x", "attachment; filename*=UTF-8''%D0%B0%00%2Fb.txt", "b.txt"),
        ("http://a.test/..", "", None),
        ("http://a.test/", "", None),
    ],
)
def test_a_name_has_no_folders(url: str, disposition: str, name: str | None) -> None:
    assert name_of(url, disposition) == name


@pytest.mark.parametrize("name", ["a./../../b", "a.é", "a.a/b", "a.toolongsuffix", "a.", None])
def test_a_suffix_is_a_few_letters(name: str | None) -> None:
    assert suffix_of("application/x-unknown", name) == ""


def test_a_type_is_declared_or_seen() -> None:
    assert type_of("Image/JPEG; q=1", b"") == "image/jpeg"
    assert type_of("", PNG) == "image/png"
    assert type_of("x/../../y", b"?") == "application/octet-stream"


async def test_a_place_outside_of_the_folder_is_not_one(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)

    assert store.path_of("../../etc/passwd") is None
    assert not store.has("/etc/passwd", Path("/etc/passwd").stat().st_size)


async def test_a_cancelled_download_leaves_no_draft(site: ScriptedSite, files: Downloads) -> None:
    begun = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "video/mp4"})
        response.content_length = len(LONG)
        await response.prepare(request)
        await response.write(LONG[:1_500_000])
        begun.set()
        await asyncio.Event().wait()
        return response

    site.answers["/hang"] = hang
    task = asyncio.create_task(files.get(f"{site.url}/hang"))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert files.drafts == []


async def test_a_transport_without_streams_is_enough(files: Downloads) -> None:
    async def plain(request: Request, usage: Usage) -> Page:
        del usage
        headers = {"content-type": "text/csv", "content-length": "3", "content-encoding": "gzip"}
        return Page(request.url, 200, headers, b"a,b\n")

    files.inner = plain

    page = await files.get("http://a.test/t.csv")

    assert page.json["bytes"] == 4


@pytest.mark.parametrize(("age", "is_continued"), [(30, False), (90, True)])
async def test_a_date_of_this_minute_proves_nothing(
    site: ScriptedSite, files: Downloads, age: float, *, is_continued: bool
) -> None:
    served = serve(site, "/long", LONG, etag=None, cuts=[1_500_000])
    served.modified = formatdate(time.time() - age, usegmt=True)
    with pytest.raises(BodyCut):
        await files.get(f"{site.url}/long")

    page = await files.get(f"{site.url}/long")

    assert ("Range" in served.requests[1].headers) == is_continued
    assert page.json["sha256"] == sha256(LONG)


async def test_a_draft_of_before_a_restart_of_the_machine_is_not_continued(
    site: ScriptedSite, files: Downloads
) -> None:
    served = serve(site, "/long", LONG, cuts=[1_500_000])
    with pytest.raises(BodyCut):
        await files.get(f"{site.url}/long")
    (about,) = (files.folder / ".drafts").glob("*.json")
    about.write_text(json.dumps({**json.loads(about.read_text()), "boot": "another"}))

    page = await files.get(f"{site.url}/long")

    assert "Range" not in served.requests[-1].headers
    assert page.json["sha256"] == sha256(LONG)


async def test_without_a_browser_there_are_no_captures(files: Downloads) -> None:
    async def spoofing(request: Request, usage: Usage) -> Page:
        del usage
        headers = {"Longline-Screenshot": '{"path": "spoofed"}', "longline-pdf": "no json"}
        return Page(request.url, 200, headers, b"text")

    files.inner = spoofing
    chain = FilesMiddleware(spoofing, files.storage, "job")

    page = await chain(Request("http://a.test/", captures=("screenshot", "pdf")), Usage())

    assert page.files == {}
    assert set(page.missing_files) == {"screenshot", "pdf"}


@pytest.mark.parametrize(("first", "piece"), [(1_500_000, 0), (100, 100)])
async def test_a_download_that_stalls_or_drips_ends(
    site: ScriptedSite, files: Downloads, clock: VirtualClock, first: int, piece: int
) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "video/mp4"})
        response.content_length = len(LONG)
        await response.prepare(request)
        await response.write(bytes(first))
        while True:
            await asyncio.sleep(5)
            await response.write(bytes(piece))

    site.answers["/slow"] = slow
    began = clock.now()

    with pytest.raises(TimedOut):
        await files.get(f"{site.url}/slow")

    assert clock.now() - began < 40


@given(url=st.text(), disposition=st.text(), declared=st.text(), start=st.binary(max_size=32))
def test_no_site_chooses_a_place(url: str, disposition: str, declared: str, start: bytes) -> None:
    name = name_of(f"http://a.test/{url}", disposition)
    suffix = suffix_of(type_of(declared, start), name)

    assert is_place(f"00/00/{'0' * 64}{suffix}")
    assert not set(name or "x") & set("/\\\0\r\n")
    assert name not in ("", ".", "..")


@pytest.mark.parametrize(
    "headers",
    [
        {"content-length": "9" * 5000},
        {"content-length": "-1"},
        {"content-length": "many", "content-type": "\x00/;;;", "content-disposition": "filename="},
        {"last-modified": "never", "date": "today", "content-range": "bytes 1-2/3"},
    ],
)
async def test_hostile_headers_are_ignored(tmp_path: Path, headers: dict[str, str]) -> None:
    async with Receiving(FolderStore(tmp_path), "http://a.test/x", largest=10) as sink:
        await sink.begin(200, headers)
        await sink.write(b"abc")
        file = await sink.finish()

    assert file.size == 3


async def test_a_length_beyond_all_numbers_is_too_large(tmp_path: Path) -> None:
    async with Receiving(FolderStore(tmp_path), "http://a.test/x", largest=10) as sink:
        with pytest.raises(BadAnswer):
            await sink.begin(200, {"content-length": "9" * 20})


async def test_a_hostile_range_starts_again(site: ScriptedSite, files: Downloads) -> None:
    served = serve(site, "/long", LONG, cuts=[1_500_000])
    with pytest.raises(BodyCut):
        await files.get(f"{site.url}/long")
    headers = {"ETag": '"1"', "Content-Range": f"bytes {'9' * 3000}-1/2"}
    site.answers["/long"] = _answering(206, headers)
    with pytest.raises(BodyCut):
        await files.get(f"{site.url}/long")
    site.answers["/long"] = served

    page = await files.get(f"{site.url}/long")

    assert page.json["sha256"] == sha256(LONG)


def _answering(status: int, headers: dict[str, str]) -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"x", status=status, headers=headers)

    return answer
