"""A database copied into another: all of it or nothing, there and back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select, text

from longline.core.clock import SystemClock
from longline.core.errors import NotCopied
from longline.core.model import Item
from longline.engine.owner import dead_among, this_run
from longline.limits.learning import Learned
from longline.storage.backends import BulkInsert, as_json
from longline.storage.copy import CopyEnd, CopyResult, DatabaseCopy, SharedValuesFile
from longline.storage.database import Database, open_database
from longline.storage.events.events import EventFilter, update_projections
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.schema import cells, items, records
from longline.storage.store import Store
from tests.limit_backends import SqliteStates
from tests.storage.copied import ODD, content, counts, fill, put_beside
from tests.storage.given import queued, record
from tests.virtual import EPOCH

PROGRAM = Path(__file__).with_name("copying_process.py")
ROW = {
    "source": "shop",
    "url": "https://shop.test",
    "job_id": "shop-1",
    "version": 1,
    "fingerprint": "first",
    "score": 70.0,
    "grade": "Good",
    "about": "{}",
    "first_seen_at": EPOCH,
    "changed_at": EPOCH,
    "seen_at": EPOCH,
}
pytestmark = pytest.mark.real_time  # whether a lease counts is decided by the database's clock


@pytest.fixture
def source(path: Path) -> Iterator[Database]:
    """A database in SQLite."""
    database = open_database(f"sqlite:///{path}", prepare=update_projections)
    yield database
    database.close()


@pytest.fixture
def target(postgres_address: str) -> Iterator[Database]:
    """An empty database on a server."""
    database = open_database(postgres_address)
    yield database
    database.close()


@pytest.fixture
def back(tmp_path: Path) -> Iterator[Database]:
    """A second database in SQLite, empty."""
    database = open_database(f"sqlite:///{tmp_path}/back.sqlite")
    yield database
    database.close()


async def copy(source: Database, target: Database, **options: Any) -> CopyResult:
    return await DatabaseCopy(CopyEnd(source), CopyEnd(target), dead_among=dead_among).run(
        **options
    )


def killed_in(table: str, source: str, target: str) -> str:
    """Copy in another process, kill it in the middle of a table; return what it said before."""
    program = [sys.executable, str(PROGRAM), source, target, table]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.readline()
        process.kill()
    return printed


def memory_of_copying(source: str, target: str) -> int:
    """Copy in another process; return by how many bytes it grew."""
    program = [sys.executable, str(PROGRAM), source, target]
    return int(subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True).stdout)


async def test_everything_comes_to_a_server_and_back_as_it_was(
    source: Database, target: Database, back: Database, path: Path, tmp_path: Path
) -> None:
    await fill(Store(source))

    there = await copy(source, target)
    again = await copy(target, back)

    assert min(table.rows for table in there.tables) > 0  # no table was forgotten
    assert [asdict(table) for table in there.tables] == [asdict(table) for table in again.tables]
    assert content(tmp_path / "back.sqlite") == content(path)


async def test_what_was_copied_to_a_server_can_be_worked_with(
    source: Database, target: Database
) -> None:
    await fill(Store(source))
    await copy(source, target)
    there = Store(target)

    await there.records.create(record("new"), at=EPOCH)
    await queued(there, "x", "y")

    assert (await there.records.get("a"))["data"] == {"title": "Thing a", **ODD}
    assert [row["version"] for row in await there.records.versions("a")] == [1]
    assert (await there.records.get("new"))["id"] == 3  # after those that were copied


async def test_a_bare_number_as_json_survives_both_kinds_of_database(
    target: Database, back: Database
) -> None:
    def write(connection: Connection, value: float) -> None:
        connection.execute(insert(cells), {"room": "r", "name": "n", "state": value})

    await target.write(write, 3.0)  # which SQLite keeps as 3

    copied = await copy(target, back)

    assert {one.name: one.rows for one in copied.tables}["cells"] == 1


async def test_a_target_that_is_not_empty_is_refused(source: Database, target: Database) -> None:
    await fill(Store(source))
    await Store(target).records.create(record("theirs"), at=EPOCH)

    with pytest.raises(NotCopied) as refused:
        await copy(source, target)

    assert refused.value.target == target.address
    assert "has rows" in refused.value.problem
    left = {name for name, count in (await counts(target)).items() if count}
    assert left == {"records", "events", "projection_rows"}


async def test_leaders_of_workers_that_wait_there_already_do_not_count(
    source: Database, target: Database
) -> None:
    await fill(Store(source))
    await Store(target).leaders.acquire("sweeping", "another", EPOCH, EPOCH + 9)

    await copy(source, target)

    assert (await counts(target))["leaders"] == 1


async def test_workers_that_are_registered_there_register_again(
    source: Database, target: Database
) -> None:
    await fill(Store(source))
    waiting = Store(target)
    await waiting.workers.renew("w", "elsewhere:1:1.00", EPOCH, EPOCH + 30)

    await copy(source, target)
    await waiting.workers.renew("w", "elsewhere:1:1.00", EPOCH, EPOCH + 30)

    events, _ = await waiting.events.read(0, EventFilter(types=("worker.*",)))
    assert [event.type for event in events] == ["worker.started"]


async def test_a_database_is_not_copied_into_itself(source: Database) -> None:
    with pytest.raises(NotCopied) as refused:
        await copy(source, source)

    assert refused.value.target == source.address


async def test_a_database_with_a_running_job_is_not_copied(
    source: Database, target: Database
) -> None:
    store = Store(source)
    job = await queued(store, "a", "b")
    now = await store.now()
    owner = this_run()
    await store.queue.lease(Claim(job.id, owner, 1, now, now + 60))

    with pytest.raises(NotCopied) as refused:
        await copy(source, target)

    assert owner in refused.value.problem
    assert "--force" in refused.value.problem
    assert set((await counts(target)).values()) == {0}
    assert (await copy(source, target, force=True)).tables


@pytest.mark.parametrize("owner", ["elsewhere:1:1.00", this_run()], ids=["elsewhere", "ours"])
async def test_workers_that_wait_for_work_are_not_left_with_the_old_database(
    source: Database, target: Database, owner: str
) -> None:
    store = Store(source)
    await store.records.create(record("a"), at=EPOCH)
    now = await store.now()
    await store.leaders.acquire("sweeper", owner, now, now + 60)

    with pytest.raises(NotCopied) as refused:
        await copy(source, target)

    assert owner in refused.value.problem
    assert "`longline down`" in refused.value.problem
    assert set((await counts(target)).values()) == {0}
    assert (await copy(source, target, force=True)).tables


async def test_workers_that_were_there_hold_nothing_up(source: Database, target: Database) -> None:
    store = Store(source)
    now = await store.now()
    gone = this_run().replace(f":{this_run().split(':')[1]}:", ":999999999:")
    await store.leaders.acquire("sweeper", gone, now, now + 60)

    assert (await copy(source, target)).tables


@pytest.mark.parametrize(("first", "last"), [("source", "target"), ("target", "source")])
async def test_what_is_written_during_a_copy_does_not_stay_behind_unnoticed(
    request: pytest.FixtureRequest, path: Path, postgres_address: str, first: str, last: str
) -> None:
    old: Database = request.getfixturevalue(first)
    new: Database = request.getfixturevalue(last)
    address = {"source": f"sqlite:///{path}", "target": postgres_address}[first]
    await Store(old).records.create(record("a"), at=EPOCH)

    def write(_table: str, _rows: int) -> None:
        with closing(open_database(address)) as other:
            asyncio.run(Store(other).events.add_statistics("job", {"requests": 1}))

    copying = DatabaseCopy(CopyEnd(old), CopyEnd(new), dead_among=dead_among, on_step=write)

    with pytest.raises(NotCopied) as refused:
        await copying.run()

    assert old.address in refused.value.problem
    assert "--force" in refused.value.problem
    left = {name for name, count in (await counts(new)).items() if count}
    assert left <= {"projections"}
    assert (await copying.run(force=True)).tables


async def test_leases_of_the_dead_and_expired_ones_hold_nothing_up(
    source: Database, target: Database
) -> None:
    store = Store(source)
    job = await queued(store, "a", "b")
    now = await store.now()
    gone = this_run().replace(f":{this_run().split(':')[1]}:", ":999999999:")
    await store.queue.lease(Claim(job.id, gone, 1, now, now + 60))
    await store.queue.lease(Claim(job.id, "elsewhere:1:1.0", 1, now, now - 1))

    await copy(source, target)

    assert (await counts(target))["items"] == 2


async def test_nul_characters_are_replaced_as_the_store_does_it(
    source: Database, target: Database
) -> None:
    store = Store(source)
    job = await queued(store, "fine")
    bad = Item("bad", "https://shop.test/\x00", 0, {})
    await store.queue.enqueue(Discovered(job.id, [bad], EPOCH))
    await store.records.create(record("a"), at=EPOCH)
    older = text("""UPDATE records SET data = '{"t":"a\\u0000\\\\u0000"}'""")
    await source.write(lambda connection: connection.execute(older))

    await copy(source, target)

    there = await Store(target).records.get("a")
    urls = await target.read(lambda connection: connection.scalars(select(items.c.url)).all())
    assert there["data"] == {"t": "a\ufffd\\u0000"}
    assert "https://shop.test/\ufffd" in urls


async def test_small_values_of_a_file_go_into_the_table_and_back_into_a_file(
    source: Database, target: Database, back: Database, tmp_path: Path
) -> None:
    first, last = tmp_path / "pace.sqlite", tmp_path / "other" / "pace.sqlite"
    last.parent.mkdir()
    await put_beside(first, "limits", "shop.test", Learned(rate=0.25))
    await put_beside(first, "pace", "shop.test", Learned())  # that does not last
    home = CopyEnd(source, SharedValuesFile(first), file_counts=True)

    await DatabaseCopy(home, CopyEnd(target), dead_among=dead_among).run()
    there = await Store(target).state_backend("limits", Learned, SystemClock()).all()
    home = CopyEnd(back, SharedValuesFile(last))
    await DatabaseCopy(CopyEnd(target), home, dead_among=dead_among).run()

    cells = SqliteStates(last, "limits", Learned, SystemClock())
    assert await cells.all() == there == {"shop.test": Learned(rate=0.25)}
    assert (await counts(target))["cells"] == 1
    await cells.close()


@pytest.mark.parametrize(("file_counts", "rate"), [(True, 0.25), (False, 0.5)])
async def test_what_a_home_works_with_wins_over_what_it_did(
    source: Database, target: Database, tmp_path: Path, *, file_counts: bool, rate: float
) -> None:
    await fill(Store(source))  # with a rate of 0.5 in the table
    await put_beside(tmp_path / "pace.sqlite", "limits", "shop.test", Learned(rate=0.25))
    side = CopyEnd(source, SharedValuesFile(tmp_path / "pace.sqlite"), file_counts=file_counts)

    await DatabaseCopy(side, CopyEnd(target), dead_among=dead_among).run()

    there = await Store(target).state_backend("limits", Learned, SystemClock()).all()
    assert there["shop.test"].rate == rate


async def test_a_copy_that_is_cancelled_leaves_the_target_empty(
    source: Database, target: Database
) -> None:
    await fill(Store(source))
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    copying = DatabaseCopy(
        CopyEnd(source),
        CopyEnd(target),
        dead_among=dead_among,
        on_step=lambda _table, _rows: loop.call_soon_threadsafe(begun.set),
    )

    async with asyncio.timeout(20):
        task = asyncio.create_task(copying.run())
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert task.cancelled()
    assert set((await counts(target)).values()) == {0}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_killed_copy_leaves_the_target_empty_and_can_be_repeated(
    source: Database, path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    target: Database = request.getfixturevalue({"sqlite": "back", "postgres": "target"}[kind])
    await fill(Store(source))

    printed = await asyncio.to_thread(killed_in, "records", f"sqlite:///{path}", target.address)

    assert "records" in printed
    assert set((await counts(target)).values()) == {0}
    assert (await copy(source, target)).tables


@pytest.mark.parametrize(
    ("end", "count", "times"), [("back", 50_000, 20), ("target", 2_000, 4_000)]
)
async def test_a_large_database_is_copied_with_little_memory(
    source: Database, request: pytest.FixtureRequest, end: str, count: int, times: int
) -> None:
    target: Database = request.getfixturevalue(end)
    rows = [
        {**ROW, "id": number, "key": str(number), "data": as_json({"text": f"{number}" * times})}
        for number in range(count)
    ]
    bulk = BulkInsert(records, list(rows[0]))
    await source.write(lambda connection: bulk.run(connection, rows))

    more = await asyncio.to_thread(memory_of_copying, source.address, target.address)

    assert (await counts(target))["records"] == count
    assert more < 25_000_000  # all rows together would take twice as much, as text alone or as rows
