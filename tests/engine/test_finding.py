"""Discovery in batchs: soon, many at a time, and nothing lost when somebody fails."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from longline.core.errors import StoreFull
from longline.core.model import Cursor, Item
from longline.engine.discovery import LARGEST_BATCH, Batch, discover_batches
from tests.virtual import VirtualClock


async def stream(count: int, error: Exception | None = None) -> AsyncIterator[Item | Cursor]:
    for number in range(count):
        yield Item(str(number), "http://x/")
        yield Cursor({"next": number + 1})
    if error:
        raise error


class Taker:
    """Takes batchs, as many as it wants."""

    def __init__(self, *, most: int = 100) -> None:
        self.batchs: list[Batch] = []
        self._most = most

    async def __call__(self, batch: Batch) -> bool:
        self.batchs.append(batch)
        return len(self.batchs) < self._most

    @property
    def keys(self) -> list[str]:
        return [item.key for batch in self.batchs for item in batch.items]


async def test_all_items_come_in_order_and_each_batch_with_its_cursor() -> None:
    taker = Taker()

    await discover_batches(stream(450), taker)

    assert taker.keys == [str(number) for number in range(450)]
    assert max(len(batch.items) for batch in taker.batchs) == LARGEST_BATCH
    assert taker.batchs[-1].cursor == Cursor({"next": 450})


async def test_what_a_failing_source_had_found_is_handed_over_first() -> None:
    taker = Taker()

    with pytest.raises(ZeroDivisionError):
        await discover_batches(stream(7, ZeroDivisionError()), taker)

    assert len(taker.keys) == 7


async def test_a_full_store_is_raised_as_itself() -> None:
    async def full(_batch: Batch) -> bool:
        raise StoreFull("somewhere")

    with pytest.raises(StoreFull):
        await discover_batches(stream(7), full)


async def test_no_more_items_are_read_than_wanted() -> None:
    taker = Taker(most=1)

    await discover_batches(stream(100_000), taker)

    assert len(taker.batchs) == 1


async def test_items_do_not_wait_for_a_slow_next_one(clock: VirtualClock) -> None:
    moments: list[float] = []

    async def slow() -> AsyncIterator[Item | Cursor]:
        yield Item("1", "http://x/")
        await clock.sleep(60)
        yield Item("2", "http://x/")

    async def note(_batch: Batch) -> bool:
        moments.append(clock.now())
        return True

    started = clock.now()
    await discover_batches(slow(), note)

    assert moments[0] - started < 1
