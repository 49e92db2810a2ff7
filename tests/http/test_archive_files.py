"""The files of an archive: writers, the index, and crashes."""

from __future__ import annotations

import asyncio
import random
import re
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from longline.core.errors import StoreFull
from longline.http.archive.packing import compress
from longline.http.archive.records import members
from longline.http.archive.warc import Archive, ArchiveCheck, open_warc
from longline.http.errors import TimedOut
from longline.http.messages import Request
from tests.http.archived import URL, answer, files_of, found, page, records_in
from tests.virtual import EPOCH


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    async with open_warc(tmp_path) as archive:
        yield archive


# ---------------------------------------------------------------- files


async def test_a_file_that_is_large_enough_is_followed_by_the_next(tmp_path: Path) -> None:
    archive = Archive(tmp_path, largest_file=3000)
    noise = random.Random(1)
    for at in range(5):
        await archive.keep(answer(noise.randbytes(1200), at=at))
    await archive.close()

    sizes = [path.stat().st_size for path in files_of(tmp_path)]
    assert len(sizes) == 3
    assert min(sizes[:-1]) >= 3000
    assert max(sizes) < 6000
    assert [one.rec_type for one in records_in(tmp_path)].count("warcinfo") == 3


async def test_two_writers_have_a_file_each(tmp_path: Path) -> None:
    async with open_warc(tmp_path) as one, open_warc(tmp_path) as other:
        await asyncio.gather(
            *(one.keep(answer(b"%d" % n, at=n)) for n in range(20)),
            *(other.keep(answer(b"%d" % n, at=n, job="shop-2")) for n in range(20)),
        )

        assert (await found(one, job="shop-2")).body == b"19"
        assert (await found(other)).body == b"19"
    assert len(files_of(tmp_path)) == 2
    assert len(records_in(tmp_path)) == 42


async def test_a_deleted_index_is_rebuilt_from_the_files(tmp_path: Path) -> None:
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"one", at=0.123456))
        await archive.keep(answer(page(b"one", url=URL + "2", status=500), at=2))
        await archive.keep(answer(TimedOut(URL + "3", 3.0)))
        before = await archive.totals()
    (tmp_path / "index.sqlite").unlink()

    async with open_warc(tmp_path) as archive:
        assert await archive.totals() == before
        assert (await found(archive, URL + "2")).status == 500
        assert (await found(archive, URL + "2")).body == b"one"
        failed = await archive.find("shop-1", Request(URL + "3"))
        assert failed is not None
        assert isinstance(failed.result, TimedOut)
        first = await archive.find("shop-1", Request(URL))
        assert first is not None
        assert first.at == pytest.approx(EPOCH + 0.123456, abs=1e-6)


# ---------------------------------------------------------------- when it ends badly


@pytest.mark.parametrize("seed", range(8))
async def test_of_a_file_cut_anywhere_every_whole_record_is_read(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with open_warc(tmp_path) as archive:
        for n in range(10):
            await archive.keep(answer(page(chance.randbytes(500), url=f"{URL}{n}"), at=n))
    (path,) = files_of(tmp_path)
    ends = [offset + length for offset, length, _ in members(path)]
    cut = chance.randrange(path.stat().st_size)
    path.write_bytes(path.read_bytes()[:cut])
    whole = sum(end <= cut for end in ends[1:])  # the first is the warcinfo

    async with open_warc(tmp_path) as archive:
        there = [await archive.find("shop-1", Request(f"{URL}{n}")) for n in range(10)]

        assert [one is not None for one in there] == [n < whole for n in range(10)]
        assert await archive.count("shop-1") == whole


async def test_a_damaged_record_is_not_given_as_an_answer(tmp_path: Path) -> None:
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"one"))
    (path,) = files_of(tmp_path)
    text = bytearray(path.read_bytes())
    text[-20] ^= 255
    path.write_bytes(text)

    async with open_warc(tmp_path) as archive:
        assert await archive.find("shop-1", Request(URL)) is None


def lost_from(path: Path, problem: str) -> list[str]:
    """Return the numbers in a problem that names this file."""
    assert path.name in problem
    return re.findall(r"\d+", problem.replace(path.name, ""))


async def test_a_sound_archive_is_found_sound(archive: Archive) -> None:
    await archive.keep(answer(b"one"))
    await archive.keep(answer(b"one", at=2))
    await archive.keep(answer(TimedOut(URL, 3.0)))

    assert await archive.verify() == ArchiveCheck()


async def test_a_body_that_is_not_what_its_digest_says_is_found(
    archive: Archive, tmp_path: Path
) -> None:
    await archive.keep(answer(b"one"))
    (path,) = files_of(tmp_path)
    texts = [text.replace(b"one", b"two") for _, _, text in members(path)]
    path.write_bytes(b"".join(compress(text) for text in texts))

    problems = (await archive.verify()).problems

    # Packed again, the record may be longer than the index says: that is a second problem.
    assert any(path.name in problem and "digest" in problem for problem in problems)


async def test_a_body_that_is_referred_to_and_lost_is_found(tmp_path: Path) -> None:
    for at in (1, 2):
        async with open_warc(tmp_path) as archive:
            await archive.keep(answer(b"one", at=at))
    first, second = files_of(tmp_path)
    first.unlink()

    async with open_warc(tmp_path) as archive:
        gone, problem = (await archive.verify()).problems

        assert lost_from(first, gone) == ["1"]
        assert second.name in problem
        assert await archive.find("shop-1", Request(URL)) is None


async def test_answers_whose_files_are_all_gone_are_missed(tmp_path: Path) -> None:
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"one"))
        await archive.keep(answer(b"two", at=2))
    (path,) = files_of(tmp_path)
    path.unlink()
    async with open_warc(tmp_path) as archive:
        await archive.totals()  # the index has forgotten them now

    async with open_warc(tmp_path) as archive:
        found = await archive.verify()

    (problem,) = found.problems
    assert lost_from(path, problem) == ["2"]


async def test_a_file_that_goes_while_the_archive_is_open_is_missed(
    archive: Archive, tmp_path: Path
) -> None:
    await archive.keep(answer(b"one"))
    (path,) = files_of(tmp_path)
    path.unlink()

    (problem,) = (await archive.verify()).problems

    assert lost_from(path, problem) == ["1"]


async def test_answers_that_come_back_are_no_longer_missed(
    archive: Archive, tmp_path: Path
) -> None:
    await archive.keep(answer(b"one"))
    (path,) = files_of(tmp_path)
    text = path.read_bytes()
    path.unlink()
    missed = await archive.verify()
    path.write_bytes(text)

    found = await archive.verify()

    assert (len(missed.problems), found) == (1, ArchiveCheck())


async def test_a_new_index_misses_nothing(tmp_path: Path) -> None:
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"one"))
    files_of(tmp_path)[0].unlink()
    (tmp_path / "index.sqlite").unlink()

    async with open_warc(tmp_path) as archive:
        assert await archive.verify() == ArchiveCheck()


async def test_a_record_that_was_cut_before_it_was_kept_is_a_note(
    archive: Archive, tmp_path: Path
) -> None:
    await archive.keep(answer(b"one"))
    (path,) = files_of(tmp_path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + compress(b"WARC/1.1 and so on")[:-5])

    found = await archive.verify()

    (note,) = found.notes
    assert found.problems == ()
    assert path.name in note
    assert str(size) in note.replace(path.name, "")


async def test_a_cut_record_that_was_kept_is_missed(tmp_path: Path) -> None:
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"one"))
    (path,) = files_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])

    async with open_warc(tmp_path) as archive:
        found = await archive.verify()

    (problem,) = found.problems
    assert lost_from(path, problem) == ["1"]
    assert len(found.notes) == 1


@pytest.mark.parametrize("is_last", [True, False])
async def test_bytes_that_were_never_a_record_are_a_problem(
    archive: Archive, tmp_path: Path, *, is_last: bool
) -> None:
    await archive.keep(answer(b"one"))
    (path,) = files_of(tmp_path)
    text = path.read_bytes()
    (_, start, _), *_ = members(path)
    path.write_bytes(text + bytes(50) if is_last else text[:start] + bytes(len(text) - start))

    found = await archive.verify()

    assert found.notes == ()
    (problem,) = found.problems
    assert path.name in problem
    assert "record" in problem


KILLED = """
import asyncio, sys
from pathlib import Path
from longline.http.archive.warc import Answer
from longline.http.archive.warc import Archive
from longline.http.messages import Page, Request

async def main():
    archive = Archive(Path(sys.argv[1]))
    async def keep(n):
        url = f"https://shop.test/{n}"
        await archive.keep(Answer("shop-1", Request(url), Page(url, 200, {}, b"%d" % n * 999), n))
        print(n, flush=True)
    n = 0
    while True:
        await asyncio.gather(*(keep(n + more) for more in range(10)))
        n += 10

asyncio.run(main())
"""


@pytest.mark.real_time
async def test_what_was_kept_survives_a_kill(tmp_path: Path) -> None:
    process = subprocess.Popen(  # noqa: ASYNC220  # nothing else runs meanwhile
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    reported = [process.stdout.readline() for _ in range(95)]
    process.kill()
    reported += process.stdout.read().splitlines()  # said before it died
    process.stdout.close()
    process.wait()
    kept = {int(line) for line in reported if line.strip()}

    async with open_warc(tmp_path) as archive:
        bodies = {n: (await found(archive, f"https://shop.test/{n}")).body for n in kept}

    assert len(kept) >= 95
    assert bodies == {n: b"%d" % n * 999 for n in kept}


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    noise = random.Random(1)
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"before"))
        with files_end_at(200_000):
            with pytest.raises(StoreFull, match=str(tmp_path)):
                await archive.keep(answer(noise.randbytes(300_000), at=2))
            refused = await found(archive)
        await archive.keep(answer(b"after", at=3))

        assert refused.body == b"before"
        assert (await found(archive)).body == b"after"
    async with open_warc(tmp_path) as archive:
        assert await archive.count("shop-1") == 2


async def test_a_full_disk_leaves_no_cut_record(tmp_path: Path) -> None:
    noise = random.Random(1)
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"before"))
        kept = files_of(tmp_path)[0].stat().st_size
        with files_end_at(200_000), pytest.raises(StoreFull):
            await archive.keep(answer(noise.randbytes(300_000), at=2))

        assert await archive.verify() == ArchiveCheck()
        assert [path.stat().st_size for path in files_of(tmp_path)] == [kept]


async def test_whole_records_before_the_one_that_filled_the_disk_stay(tmp_path: Path) -> None:
    noise = random.Random(1)
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"before"))
        with files_end_at(200_000):
            await asyncio.gather(
                archive.keep(answer(b"whole", at=2)),
                archive.keep(answer(noise.randbytes(300_000), at=3)),
                return_exceptions=True,
            )
        assert await archive.verify() == ArchiveCheck()
    async with open_warc(tmp_path) as archive:
        assert (await found(archive)).body == b"whole"


async def test_all_waiters_get_the_error_of_a_full_disk(tmp_path: Path) -> None:
    noise = random.Random(1)
    async with open_warc(tmp_path) as archive:
        await archive.keep(answer(b"before"))
        with files_end_at(200_000):
            ends = await asyncio.gather(
                *(archive.keep(answer(noise.randbytes(300_000))) for _ in range(5)),
                return_exceptions=True,
            )

    assert [type(end) for end in ends] == [StoreFull] * 5


async def test_a_cancelled_waiter_cancels_no_other(archive: Archive) -> None:
    keeping = [asyncio.ensure_future(archive.keep(answer(b"%d" % n, at=n))) for n in range(3)]
    await asyncio.sleep(0)

    keeping[1].cancel()

    ends = await asyncio.gather(*keeping, return_exceptions=True)
    assert [type(end) for end in ends] == [type(None), asyncio.CancelledError, type(None)]
    assert (await found(archive)).body == b"2"
