"""The pages of records: list, one record, download."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
from typing import Any
from urllib.parse import quote

import pytest
from multidict import CIMultiDict
from yarl import URL

from longline.core.model import Record
from longline.storage.query import RecordQuery
from tests.server.web.conftest import Dashboard

HOSTILE = {
    "title": "<script>alert(1)</script>",
    "link": "javascript:alert(1)",
    "data": "data:text/html,<script>alert(1)</script>",
    "long": "x" * 100_000,
    "control": "a\x00b\x07c\x1b[31md\u202ee\u2028f",
    "<b>field</b>": {"<i>": ["</td>", None, 1.5]},
    "photo": 'https://example.org/"onerror=alert(1) x.jpg',
    "": "no name",
    "a.b": "dotted",
    "ok": "https://example.org/a.jpg",
}
KEYS = ["a/b/../c", "..", "ключ ?#&=", "<svg onload=alert(1)>", "a\x00b", "%2F", "k" * 3000]


async def add(dashboard: Dashboard, key: str, data: dict[str, Any], at: float = 1.0) -> None:
    fingerprint = str(hash(str(data)))
    record = Record("shop", key, "http://x.test/", data, fingerprint=fingerprint)
    await dashboard.store.records.create(record, at=at)


@pytest.mark.parametrize("key", KEYS)
async def test_a_record_with_a_hostile_key_is_shown(dashboard: Dashboard, key: str) -> None:
    await add(dashboard, key, HOSTILE)

    listed = await dashboard.get("/records?source=shop")
    link = listed.text.partition('<td class="key"><a href="')[2].partition('"')[0]
    shown = await dashboard.get(link.replace("&amp;", "&"))

    assert (listed.status, shown.status) == (200, 200)
    for text in (listed.text, shown.text):
        assert "<script>alert" not in text
        assert "<svg onload" not in text
        assert 'href="javascript' not in text
        assert 'href="data:' not in text
        assert "\x00" not in text
        assert "\x1b" not in text


async def test_a_record_has_its_path(dashboard: Dashboard) -> None:
    await add(dashboard, "a/b", {"title": "one"})

    assert (await dashboard.get("/records/shop/a%2Fb")).status == 200
    assert (await dashboard.get("/records/shop/a/b")).status == 200
    assert (await dashboard.get("/records/shop/nothing")).status == 404


async def test_the_history_of_a_record_is_shown(dashboard: Dashboard) -> None:
    for at, price in enumerate([1, 2, 3], start=1):
        await add(dashboard, "a", {"price": price, "title": "<b>"}, float(at))

    shown = await dashboard.get("/records/one?source=shop&key=a")
    compared = await dashboard.get("/records/one?source=shop&key=a&from=1&to=3")
    missing = await dashboard.get("/records/one?source=shop&key=a&from=1&to=9")

    assert shown.text.count("Version 1 to 2") == shown.text.count("Version 2 to 3") == 1
    assert '<span class="old">1</span>' in compared.text
    assert '<span class="new">3</span>' in compared.text
    assert missing.status == 422


@pytest.mark.parametrize("start", ["/records", "/records?source=shop"])
async def test_pages_list_every_record_once(dashboard: Dashboard, start: str) -> None:
    await asyncio.gather(*(add(dashboard, f"k{number:03}", {"a": number}) for number in range(120)))
    keys: list[str] = []
    url = start

    while url:
        text = (await dashboard.get(url)).text
        keys += [one.partition("key=")[2][:4] for one in text.split('class="key"')[1:]]
        url = text.partition('<p class="more"><a class="button" href="')[2].partition('"')[0]
        url = url.replace("&amp;", "&")

    assert sorted(keys) == [f"k{number:03}" for number in range(120)]


async def test_filters_choose_records(dashboard: Dashboard) -> None:
    await add(dashboard, "a", {"title": "red hat", "price": 10})
    await add(dashboard, "b", {"title": "blue hat", "price": 200})

    by_text = await dashboard.get("/records?q=red")
    by_field = await dashboard.get("/records?source=shop&where=price%3E100")
    wrong = await dashboard.get("/records?where=%3Cb%3E")

    assert by_text.text.count('class="key"') == by_field.text.count('class="key"') == 1
    assert wrong.status == 422


@pytest.mark.parametrize(
    "query", ["after=x", "after=i:-1", "min_score=x", "since=x", "columns=@x", "job=x", "where=a"]
)
async def test_a_malformed_filter_is_refused(dashboard: Dashboard, query: str) -> None:
    assert (await dashboard.get(f"/records?{query}")).status in (404, 422)


@pytest.mark.parametrize("form", ["csv", "jsonl", "json"])
async def test_a_query_is_downloaded(dashboard: Dashboard, form: str) -> None:
    await add(dashboard, "a", {"title": "=1+1", "price": 10})
    await add(dashboard, "b", {"title": "blue", "price": 200})

    answer = await dashboard.get(f"/records/export?format={form}&source=shop&where=price%3C100")

    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == f'attachment; filename="shop.{form}"'
    assert "=1+1" in answer.text
    assert "blue" not in answer.text


async def test_a_csv_has_one_line_per_record(dashboard: Dashboard) -> None:
    await add(dashboard, "a", HOSTILE)

    answer = await dashboard.get("/records/export?format=csv&source=" + quote("shop"))

    [row] = csv.DictReader(io.StringIO(answer.text))
    assert row["title"] == HOSTILE["title"]


async def test_an_unknown_format_is_refused(dashboard: Dashboard) -> None:
    assert (await dashboard.get("/records/export?format=exe")).status == 422


async def test_a_search_ends_in_time_and_goes_on(dashboard: Dashboard) -> None:
    records, query = dashboard.store.records, RecordQuery(text="the first")
    await add(dashboard, "first", {"title": "the first"})
    await asyncio.gather(*(add(dashboard, f"k{one}", {"title": "other"}) for one in range(2100)))

    page = await records.page(query, seconds=0.0)
    rest = await records.page(query, after=page.cursor, seconds=0.0)

    assert (page.rows, page.is_full) == ([], False)
    assert [row["key"] for row in rest.rows] == ["first"]


def store_file(dashboard: Dashboard, content: bytes, suffix: str) -> dict[str, Any]:
    """Store a file; return what a record says about it."""
    digest = hashlib.sha256(content).hexdigest()
    place = f"{digest[:2]}/{digest[2:4]}/{digest}{suffix}"
    path = dashboard.settings.files_folder / place
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return {"path": place, "sha256": digest, "bytes": len(content), "type": "image/gif"}


async def test_a_stored_picture_is_shown_as_what_its_bytes_are(dashboard: Dashboard) -> None:
    picture = store_file(dashboard, b"GIF89a picture", ".gif")
    page = store_file(dashboard, b"<script>alert(1)</script>", ".html")
    await add(dashboard, "a", {"photo": picture, "more": [{"inner": page}]})

    record = await dashboard.get("/records/one?source=shop&key=a")
    shown = await dashboard.get(f"/stored/{picture['path']}")
    sent = await dashboard.get(f"/stored/{page['path']}")

    assert f'<img src="/stored/{picture["path"]}"' in record.text
    assert f'href="/stored/{page["path"]}"' in record.text
    of_picture, of_page = CIMultiDict(shown.headers), CIMultiDict(sent.headers)
    assert (shown.status, of_picture["content-type"]) == (200, "image/gif")
    assert "content-disposition" not in of_picture
    assert of_page["content-type"] == "application/octet-stream"
    assert of_page["content-disposition"].startswith("attachment")
    for headers in (of_picture, of_page):
        assert headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert headers["x-content-type-options"] == "nosniff"


async def test_files_are_shown_by_their_names_and_sizes(dashboard: Dashboard) -> None:
    photo = {**store_file(dashboard, b"GIF89a picture", ".gif"), "name": "front.gif"}
    remote = {"url": "s3://bucket/v.mp4", "sha256": "ab" * 32, "bytes": 12_345_678}
    await add(dashboard, "a", {"photo": photo, "video": remote, "several": [photo, None, remote]})

    page = await dashboard.get("/records/one?source=shop&key=a")

    summaries = [part.partition("<")[0] for part in page.text.split("<summary>")[1:]]
    assert summaries == ["front.gif", "v.mp4", "2 files"]
    files = page.text.partition("<h2>Files</h2>")[2]
    assert all(text in files for text in ("front.gif</a>", "s3://bucket/v.mp4", "12.3 MB"))
    assert 'href="s3:' not in files


async def test_a_column_of_numbers_has_its_heading_above_them(dashboard: Dashboard) -> None:
    await add(dashboard, "a", {"title": "one", "price": 5.0})
    await add(dashboard, "b", {"title": "two", "price": None})

    page = await dashboard.get("/records?source=shop&columns=title,price")

    assert '<th scope="col">title' in page.text
    assert '<th scope="col" class="num">price' in page.text
    assert page.text.count('data-label="price" class="num"') == 2


@pytest.mark.parametrize(
    "place", ["../longline.sqlite", "%2e%2e/longline.sqlite", "/etc/passwd", ".drafts/x", "a" * 64]
)
async def test_nothing_but_stored_files_is_sent(dashboard: Dashboard, place: str) -> None:
    await add(dashboard, "a", {"photo": {"path": place, "sha256": "x", "type": "image/png"}})

    record = await dashboard.get("/records/one?source=shop&key=a")
    sent = await dashboard.get(URL(f"{dashboard.url}/stored/{place}", encoded=True).path_qs)

    assert "/stored/" not in record.text
    assert sent.status == 404


async def test_a_stored_file_needs_a_login(dashboard: Dashboard) -> None:
    picture = store_file(dashboard, b"GIF89a picture", ".gif")
    dashboard.session.cookie_jar.clear()

    sent = await dashboard.get(f"/stored/{picture['path']}", allow_redirects=False)

    assert sent.status in (303, 401)
