"""The archive of WARC files: answers found again as they were, and read by strangers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from longline.core.errors import CircuitOpen, ConnectFailed, Deferred, FailureKind, FetchError
from longline.http.archive.records import members
from longline.http.archive.warc import Archive, open_warc
from longline.http.errors import BadAnswer, RobotsDisallowed, TimedOut
from longline.http.messages import Page, Request
from tests.http.archived import (
    HTML,
    URL,
    answer,
    files_of,
    found,
    page,
    read_by_fastwarc,
    records_in,
)
from tests.virtual import EPOCH


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    async with open_warc(tmp_path) as archive:
        yield archive


# ---------------------------------------------------------------- keeping and finding


async def test_an_answer_is_found_as_it_was_given(archive: Archive) -> None:
    headers = CIMultiDict([("Content-Type", "text/plain"), ("Link", "</a>"), ("Link", "</b>")])
    given = page(b"\x00\xff body", status=404, headers=headers)

    await archive.keep(answer(given))

    back = await archive.find("shop-1", Request(URL))
    assert back is not None
    assert back.at == EPOCH + 1
    assert isinstance(back.result, Page)
    assert (back.result.url, back.result.status, back.result.body) == (URL, 404, b"\x00\xff body")
    assert list(back.result.headers.items()) == list(headers.items())
    assert back.result.headers["content-type"] == "text/plain"


async def test_headers_that_spoke_of_the_packing_come_back_too(archive: Archive) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Length": "7", "Transfer-Encoding": "chunked"}

    await archive.keep(answer(page(b"unpacked", headers=headers)))

    assert dict((await found(archive)).headers) == headers


async def test_an_answer_without_a_length_gets_none(archive: Archive) -> None:
    await archive.keep(answer(page(headers={})))

    assert dict((await found(archive)).headers) == {}


@pytest.mark.parametrize(
    "other",
    [
        Request(URL + "d"),
        Request(URL, "POST"),
        Request(URL, headers={"accept": "text/html"}),
        Request(URL, body=b"x"),
    ],
)
async def test_another_request_has_another_answer(archive: Archive, other: Request) -> None:
    await archive.keep(answer(b"mine"))

    assert await archive.find("shop-1", other) is None
    await archive.keep(answer(page(b"its"), request=other))
    assert (await found(archive)).body == b"mine"
    assert (await found(archive, other)).body == b"its"


async def test_the_case_and_order_of_headers_do_not_matter(archive: Archive) -> None:
    await archive.keep(answer(request=Request(URL, headers={"Accept": "a", "X-B": "b"})))

    assert await archive.find("shop-1", Request(URL, headers={"x-b": "b", "accept": "a"}))


async def test_another_job_has_its_own_answers(archive: Archive) -> None:
    await archive.keep(answer(b"one"))
    await archive.keep(answer(b"two", job="shop-2"))

    assert (await found(archive)).body == b"one"
    assert [await archive.count(job) for job in ("shop-1", "shop-2", "shop-3")] == [1, 1, 0]


async def test_the_newest_answer_wins_and_the_others_are_kept(archive: Archive) -> None:
    for at, body in [(1, b"first"), (3, b"third"), (2, b"second")]:
        await archive.keep(answer(body, at=at))

    until = [await archive.find("shop-1", Request(URL), until=EPOCH + at) for at in (0, 1, 2.5, 9)]

    assert (await found(archive)).body == b"third"
    bodies = [one.result.body for one in until if one and isinstance(one.result, Page)]
    assert bodies == [b"third", b"first", b"second", b"third"]


@pytest.mark.parametrize(
    "error",
    [
        TimedOut(URL, 30.0),
        ConnectFailed(URL, "no route"),
        BadAnswer(URL, "too large"),
        RobotsDisallowed(URL, "it applies to longline"),
        CircuitOpen(URL, EPOCH + 5),
        Deferred(URL, EPOCH + 5, "busy", FailureKind.OVERLOAD),
    ],
)
async def test_an_error_in_place_of_an_answer_is_found_too(
    archive: Archive, error: FetchError
) -> None:
    await archive.keep(answer(error))

    back = await archive.find("shop-1", Request(URL))

    assert back is not None
    assert isinstance(back.result, FetchError)
    assert (type(back.result), back.result.args) == (type(error), error.args)
    assert (back.result.kind, str(back.result)) == (error.kind, str(error))


@pytest.mark.parametrize("url", ["https://x.test/ä b", "https://x.test/\r\nX: y", "http://[x"])
async def test_an_odd_address_stays_inside_its_line(
    archive: Archive, tmp_path: Path, url: str
) -> None:
    await archive.keep(answer(page(url=url)))

    assert (await found(archive, url)).url == url
    await archive.close()
    assert [(one.rec_type, one.body) for one in records_in(tmp_path)][1:] == [
        ("response", b"hello")
    ]


@settings(max_examples=30, deadline=None)
@given(
    body=st.binary(max_size=300),
    headers=st.lists(
        st.tuples(
            st.text("abcXYZ-", min_size=1, max_size=8),
            st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=20).map(
                str.strip
            ),
        ),
        max_size=4,
    ),
)
async def test_any_body_and_headers_come_back(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, headers: list[tuple[str, str]]
) -> None:
    async with open_warc(tmp_path_factory.mktemp("any")) as archive:
        await archive.keep(answer(page(body, headers=CIMultiDict(headers))))

        back = await found(archive)

    assert (back.body, list(back.headers.items())) == (body, headers)


# ---------------------------------------------------------------- read by strangers


async def test_warcio_reads_every_record_and_finds_the_digests_right(tmp_path: Path) -> None:
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"one"))
        await archive.keep(answer(page(b"", status=204, headers={})))
        await archive.keep(answer(TimedOut(URL, 3)))
        await archive.keep(answer(b"one", at=2))

    assert [(one.rec_type, one.rec_headers["WARC-Target-URI"]) for one in records_in(tmp_path)] == [
        ("warcinfo", None),
        ("response", URL),
        ("response", URL),
        ("metadata", URL),
        ("revisit", URL),
    ]


async def test_fastwarc_reads_every_record_and_finds_the_digests_right(tmp_path: Path) -> None:
    packed = {"Content-Encoding": "gzip", "Content-Length": "3", "Transfer-Encoding": "chunked"}
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"one"))
        await archive.keep(answer(page(b"two " * 999, headers=packed)))

    read = read_by_fastwarc(tmp_path)
    assert read == [(True, b"one"), (True, b"two " * 999)]


async def test_a_record_says_what_readers_look_for(tmp_path: Path) -> None:
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"one"))

    opening, record = records_in(tmp_path)
    assert opening.rec_headers["WARC-Filename"] == files_of(tmp_path)[0].name
    headers = record.rec_headers
    assert headers.protocol == "WARC/1.1"
    assert headers["WARC-Date"] == "2027-01-15T08:00:01.000000Z"
    assert headers["WARC-Payload-Digest"].startswith("sha256:")
    assert headers["X-Longline-Job"] == "shop-1"
    assert record.http_headers.get_statuscode() == "200"
    assert record.http_headers["Content-Length"] == "3"
    assert record.http_headers["Content-Type"] == HTML["Content-Type"]


async def test_a_packed_answer_is_archived_unpacked(tmp_path: Path) -> None:
    async with open_warc(tmp_path) as archive:
        headers = {"Content-Encoding": "br", "Content-Length": "5"}
        await archive.keep(answer(page(b"x" * 99, headers=headers)))

    record = records_in(tmp_path)[1]
    assert record.http_headers["Content-Encoding"] is None
    assert record.http_headers.get_header("Content-Length") == "99"


# ---------------------------------------------------------------- once is enough


async def test_a_body_seen_before_becomes_a_revisit_that_resolves(tmp_path: Path) -> None:
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(page(b"same", url="https://shop.test/first")))
        await archive.keep(answer(page(b"same", headers={"X-Mine": "yes"}), job="shop-2", at=2))

        back = await found(archive, job="shop-2")

    assert (back.body, dict(back.headers)) == (b"same", {"X-Mine": "yes"})
    _, original, revisit = records_in(tmp_path)
    said = revisit.rec_headers
    assert revisit.rec_type == "revisit"
    assert said["WARC-Profile"].endswith("/warc/1.1/revisit/identical-payload-digest")
    assert said["WARC-Refers-To-Target-URI"] == original.rec_headers["WARC-Target-URI"]
    assert said["WARC-Refers-To-Date"] == original.rec_headers["WARC-Date"]
    assert said["WARC-Payload-Digest"] == original.rec_headers["WARC-Payload-Digest"]
    assert revisit.http_headers["X-Mine"] == "yes"


async def test_a_later_run_refers_to_the_bodies_of_an_earlier_one(tmp_path: Path) -> None:
    for at in (1, 2):
        async with open_warc(tmp_path) as archive:
            await archive.keep(answer(b"same", at=at))

    kinds = [one.rec_type for one in records_in(tmp_path)]
    assert kinds == ["warcinfo", "response", "warcinfo", "revisit"]


async def test_bodies_that_arrive_together_are_stored_once(archive: Archive) -> None:
    await asyncio.gather(*(archive.keep(answer(b"same", at=at)) for at in range(20)))

    totals = await archive.totals()

    assert (totals.answers, totals.bodies) == (20, 1)


async def test_a_body_whose_file_was_deleted_is_stored_again(tmp_path: Path) -> None:
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"same"))
    files_of(tmp_path)[0].unlink()

    async with open_warc(tmp_path) as archive:
        lost = await archive.find("shop-1", Request(URL))
        await archive.keep(answer(b"same", at=2))

        assert lost is None
        assert (await found(archive)).body == b"same"


# ---------------------------------------------------------------- no secrets


async def test_what_a_cookie_was_set_to_is_left_out(archive: Archive, tmp_path: Path) -> None:
    headers = CIMultiDict([("Set-Cookie", "sid=s3cret; Path=/; HttpOnly"), ("set-cookie", "a=b")])

    await archive.keep(answer(page(headers=headers)))

    back = (await found(archive)).headers
    assert list(back.values()) == ["sid=; Path=/; HttpOnly", "a="]
    await archive.close()
    assert not any(b"s3cret" in text for _, _, text in members(files_of(tmp_path)[0]))


async def test_passwords_and_headers_of_requests_are_not_in_the_files(tmp_path: Path) -> None:
    url = "https://me:s3cret@shop.test/a"
    request = Request(url, headers={"authorization": "s3cret"}, body=b"s3cret")
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(page(url=url), request=request))
        back = await found(archive, request)
        await archive.keep(answer(BadAnswer(url, f"{url} is odd"), request=request, at=2))
        error = await archive.find("shop-1", request)

    assert back.url == url
    assert error is not None
    assert str(error.result) == str(BadAnswer(url, f"{url} is odd"))
    texts = [text for _, _, text in members(files_of(tmp_path)[0])]
    assert len(texts) == 3
    assert not any(b"s3cret" in text for text in texts)
    assert b"s3cret" not in (tmp_path / "index.sqlite").read_bytes()
