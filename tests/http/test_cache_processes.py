"""What a file adds to the contract: other processes, crashes, trouble, and what is not in it."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.core.errors import StoreFull, StoreTooNew, StoreUnreachable
from longline.core.sqlite_files import SqliteFile
from longline.http.cache import HttpCache
from longline.http.messages import Request
from tests.http.cache_given import Browser, entry, shelf
from tests.scripted_site import ScriptedSite
from tests.virtual import EPOCH, VirtualClock

PROGRAM = Path(__file__).with_name("cache_process.py")
FRESH = {"Cache-Control": "max-age=60", "ETag": '"1"'}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.sqlite"


@pytest.fixture
def cache(path: Path) -> Iterator[HttpCache]:
    cache = HttpCache(path)
    yield cache
    cache.close()


def start(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(path), name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def raw(path: Path) -> bytes:
    """Return the bytes of the file and of what belongs to it."""
    return b"".join(part.read_bytes() for part in sorted(path.parent.glob(f"{path.name}*")))


async def test_a_second_run_finds_what_the_first_has_stored(
    site: ScriptedSite, path: Path, clock: VirtualClock
) -> None:
    shelf(site, "/a", FRESH)
    for expected in (False, True):
        cache = HttpCache(path)
        browser = Browser(clock, cache)
        page = await browser.get(f"{site.url}/a")
        assert (page.text, page.is_cached) == ("answer 1", expected)
        await browser.close()
        cache.close()


def test_processes_share_a_file(path: Path, cache: HttpCache) -> None:
    processes = [start(path, name, 300) for name in ("a", "b", "c", "d")]

    for process in processes:
        process.communicate()

    assert [process.returncode for process in processes] == [0] * 4
    assert cache.stats().entries == 4 * 300
    found = cache.find("http://c.test/299")
    assert cache.read(found[0], EPOCH) == b"http://c.test/299" * 100


def test_a_process_that_is_killed_leaves_a_file_that_can_be_used(
    path: Path, cache: HttpCache
) -> None:
    process = start(path, "a", 10**9)
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    process.kill()
    process.communicate()

    cache.put(entry(), b"after")

    assert cache.stats().entries > 2000
    assert cache.read(cache.find("http://a.test/7")[0], EPOCH) == b"http://a.test/7" * 100
    assert cache.read(entry(), EPOCH) == b"after"
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_no_secret_is_in_the_file(
    site: ScriptedSite, path: Path, clock: VirtualClock
) -> None:
    cache = HttpCache(path)
    browser = Browser(clock, cache)
    shelf(site, "/a", {**FRESH, "Vary": "Cookie, X-Own, Authorization"})
    secrets = {
        "Cookie": "session=s3cret-c",
        "Authorization": "Bearer s3cret-a",
        "X-Own": "s3cret-x",
    }
    request = Request(f"{site.url}/a", headers=secrets, hidden={"key": "s3cret-h"})

    await browser.ask(request)
    again = await browser.ask(request)
    await browser.close()
    cache.close()

    assert again.is_cached
    assert b"answer 1" in raw(path)
    assert b"s3cret" not in raw(path)


def test_the_file_is_ours_alone(path: Path, cache: HttpCache) -> None:
    cache.put(entry(), b"x")
    cache.flush()

    modes = {stat.S_IMODE(part.stat().st_mode) for part in path.parent.glob("cache.sqlite*")}

    assert modes == {0o600}


def test_looking_makes_no_file(path: Path, cache: HttpCache) -> None:
    assert cache.stats().entries == 0
    assert cache.clear().entries == 0
    assert not path.exists()


def test_the_file_of_another_program_is_refused_and_unchanged(path: Path, cache: HttpCache) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreUnreachable) as refused:
        cache.find("http://site.test/a")

    assert refused.value.address == str(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(path: Path, cache: HttpCache) -> None:
    path.write_bytes(b"something else entirely" * 100)

    with pytest.raises(StoreUnreachable):
        cache.stats()


def test_a_newer_file_is_refused(path: Path, cache: HttpCache) -> None:
    cache.put(entry(), b"x")
    cache.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(StoreTooNew):
        cache.find("http://site.test/a")


async def test_a_cache_that_cannot_be_opened_fails_no_request(
    site: ScriptedSite, path: Path, clock: VirtualClock
) -> None:
    path.mkdir()
    browser = Browser(clock, HttpCache(path))
    shelf(site, "/a", FRESH)

    texts = [(await browser.get(f"{site.url}/a")).text for _ in range(3)]

    assert texts == ["answer 1", "answer 2", "answer 3"]
    assert [one.type for one in browser.usage.events] == ["cache.unavailable"]
    await browser.close()


async def test_a_cache_that_cannot_be_written_any_more_fails_no_request(
    site: ScriptedSite, path: Path, clock: VirtualClock, cache: HttpCache
) -> None:
    cache.put(entry(), b"x")
    cache.flush()
    with sqlite3.connect(path) as connection:
        full = "CREATE TRIGGER full BEFORE INSERT ON answers BEGIN SELECT RAISE(ABORT, 'full'); END"
        connection.execute(full)
    connection.close()
    browser = Browser(clock, cache)
    shelf(site, "/a", FRESH)

    first = await browser.get(f"{site.url}/a")
    cache.flush()
    texts = [(await browser.get(f"{site.url}/a")).text for _ in range(2)]

    assert [first.text, *texts] == ["answer 1", "answer 2", "answer 3"]
    assert [one.type for one in browser.usage.events] == ["cache.unavailable"]
    await browser.close()


def test_a_full_disk_is_reported_as_such(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA max_page_count = 2")
    connection.execute("CREATE TABLE a (b)")

    with pytest.raises(StoreFull):
        SqliteFile(path, 1, 1, "", "").run(
            lambda: connection.execute("INSERT INTO a VALUES (zeroblob(100000))")
        )

    connection.close()


def test_a_disk_that_cannot_keep_up_costs_answers_and_not_memory(
    path: Path, cache: HttpCache
) -> None:
    cache.put(entry(), b"x")
    cache.flush()
    blocking = sqlite3.connect(path, isolation_level=None)
    blocking.execute("BEGIN IMMEDIATE")
    body = bytes(30_000_000)

    for number in range(5):
        cache.put(entry(url=f"http://site.test/{number}"), body)
    held = [bool(cache.find(f"http://site.test/{number}")) for number in range(5)]
    blocking.execute("COMMIT")
    blocking.close()

    assert held == [True, True, False, False, False]
    assert cache.stats().entries == 3


def test_closing_writes_what_is_pending_and_may_be_repeated(path: Path) -> None:
    cache = HttpCache(path)
    for number in range(2000):
        cache.put(entry(url=f"http://site.test/{number}"), b"x")

    cache.close()
    cache.close()

    again = HttpCache(path)
    assert again.stats().entries == 2000
    again.close()
