"""How many chunks a piece of work takes before it runs dry, and when it tells that one is done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from longline.core.model import ItemState, Lease
from longline.engine.runtime import RunOptions
from longline.engine.worker import DomainWorker, StopSignal, WorkEnd
from longline.storage.queue.chunks import ChunkClaim
from tests.engine.chunk_process import LONG, Begin, Process, slow
from tests.scripted_site import ScriptedSite

WIDTH = 2
ITEMS = 120


@dataclass
class Taking:
    """Takes chunks for a piece of work as the engine does, slowly, and notes what it was asked."""

    process: Process
    size: int
    seconds: float = 0.0
    wishes: list[int] = field(default_factory=list)
    emptied: dict[str, float] = field(default_factory=dict)
    """When each owner was said to hold nothing any more."""
    most_leased: int = 0

    async def __call__(self, emptied: Sequence[str], wanted: int) -> Sequence[Lease]:
        process, now = self.process, self.process.clock.now()
        self.emptied |= dict.fromkeys(emptied, now)
        self.wishes.append(wanted)
        await asyncio.sleep(self.seconds)
        await process.store.chunks.publish(process.job.id, now, size=1, most=4 * ITEMS)
        domain = process.collector.source.options.site.removeprefix("http://")
        then = ChunkClaim(f"turn {len(self.wishes)}", now, now + LONG, self.size)
        taken = []
        if wanted:
            count = -(-wanted // self.size)
            job = process.job.id
            taken = await process.store.chunks.claim_next(job, domain, then, count=count)
        self.most_leased = max(self.most_leased, (await process.counts()).get(ItemState.LEASED, 0))
        return [lease for one in taken for lease in one.leases]


async def work(process: Process, taking: Taking, size: int) -> WorkEnd:
    await process.discover()
    taken = await process.take("first", size)
    assert taken is not None
    return await DomainWorker(
        process.runtime,
        process.collector,
        RunOptions(concurrency=WIDTH),
        leases=taken.leases,
        room=asyncio.Semaphore(WIDTH),
        stop=StopSignal(),
        on_commit=lambda _lease, _outcome, _state: None,
        feed=taking,
    ).run(LONG)


async def test_a_fast_site_claims_several_small_chunks_at_a_time(
    begun: Begin, site: ScriptedSite
) -> None:
    site.answers |= {f"/item/{number}": slow(0.1) for number in range(ITEMS)}
    async with begun(count=ITEMS) as process:
        taking = Taking(process, size=2, seconds=1.0)
        end = await work(process, taking, 2)

    assert end.finished == ITEMS
    # In a second 20 are begun: so many are kept ahead, twice over, once that is known.
    assert max(taking.wishes) > 20
    assert len(taking.wishes) < ITEMS / 2 / 2
    assert end.seconds < 0.1 * ITEMS / WIDTH + 5


async def test_a_slow_site_never_claims_more_than_it_needs(
    begun: Begin, site: ScriptedSite
) -> None:
    site.answers |= {f"/item/{number}": slow(10) for number in range(20)}
    async with begun(count=20) as process:
        taking = Taking(process, size=2, seconds=1.0)
        end = await work(process, taking, 2)

    assert end.finished == 20
    # What all of its workers could begin at one moment, twice over.
    assert max(taking.wishes) <= 4 * WIDTH
    assert taking.most_leased <= 6 * WIDTH
    assert end.seconds == pytest.approx(10 * 20 / WIDTH, abs=2)


async def test_a_done_chunk_is_reported_although_no_more_is_needed(
    begun: Begin, site: ScriptedSite
) -> None:
    site.answers |= {f"/item/{number}": slow(2) for number in range(22)}
    async with begun(count=22) as process:
        taking = Taking(process, size=20)
        began = process.clock.now()
        end = await work(process, taking, 2)

    # The first chunk is done after two seconds, the second after twenty more.
    first = min(taking.emptied.values()) - began
    assert end.finished == 22
    assert taking.wishes[1] == 0
    assert 7 <= first <= 9.5


async def test_a_domain_is_busy_while_more_of_it_is_leased(
    begun: Begin, site: ScriptedSite
) -> None:
    site.says("/item/0", "quick")
    async with begun(count=1) as process:
        await process.discover()
        taken = await process.take()
        assert taken is not None
        seen: list[set[str]] = []

        async def more() -> None:
            await asyncio.sleep(1)  # its one item is done by now
            seen.append(process.engine.busy_domains())

        end = await process.run_chunk(taken, seconds=LONG, more=more)

    assert end.finished == 1
    assert seen == [{taken.leases[0].domain}]
    assert process.engine.busy_domains() == set()
