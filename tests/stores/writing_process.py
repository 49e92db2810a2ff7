"""A process that writes to a store which others write to as well.

Usage: writing_process.py ADDRESS JOB NAME COUNT. Started by test_store_processes.py; prints how
many of its writes were committed.
"""

from __future__ import annotations

import asyncio
import sys

from longline.model import Item, Outcome, Record, Verdict
from longline.stores.adding import Discovered
from longline.stores.finishing import Finish
from longline.stores.leases import Claim
from longline.stores.store import Store, open_store

AT = 1_800_000_000.0


async def write(store: Store, job: str, key: str) -> None:
    made = Record("shop", key, f"https://shop.test/{key}", {"title": key}, "first")
    await store.records.create(made, at=AT, job=job)
    await store.journal.add_up(job, {"requests": 1})


async def work_off(store: Store, job: str, name: str) -> int:
    """Lease and finish what there is, side by side with the others; return how much it was."""
    done = 0
    while leases := await store.queue.lease(Claim(job, name, 5, AT, AT + 600)):
        ends = (Finish(lease, Outcome(Verdict.SKIP, reason=name), AT) for lease in leases)
        done += len(await asyncio.gather(*(store.queue.finish(end) for end in ends)))
    return done


async def main(address: str, job: str, name: str, count: int) -> None:
    with open_store(address) as store:
        keys = [f"{name}-{number}" for number in range(count)]
        await store.queue.add(Discovered(job, [Item(key, "https://shop.test") for key in keys], AT))
        for start in range(0, count, 10):
            await asyncio.gather(*(write(store, job, key) for key in keys[start : start + 10]))
        print(await work_off(store, job, name))  # noqa: T201 - the answer of this program


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
