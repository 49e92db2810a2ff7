"""Processes that all write to one store.

Usage: writing_process.py ADDRESS JOB PROCESSES COUNT. Started by test_processes.py; each
process prints how many of its writes were committed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys

from longline.core.model import Item, ItemState, Outcome, OutcomeAction, Record
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import Store, open_store

AT = 1_800_000_000.0


async def write(store: Store, job: str, key: str) -> None:
    made = Record("shop", key, f"https://shop.test/{key}", {"title": key}, "first")
    await store.records.create(made, at=AT, job=job)
    await store.events.add_statistics(job, {"requests": 1})


async def work_off(store: Store, job: str, name: str) -> int:
    """Lease and finish what there is, side by side with the others; return how much it was."""
    done = 0
    while leases := await store.queue.lease(Claim(job, name, 5, AT, AT + 600)):
        skip = Outcome(OutcomeAction.SKIP, reason=name, at=AT)
        for ends in await asyncio.gather(
            *(store.queue.complete_all([(lease, skip)]) for lease in leases)
        ):
            done += ends == [ItemState.SKIPPED]
    return done


async def main(address: str, job: str, name: str, count: int) -> None:
    with open_store(address) as store:
        keys = [f"{name}-{number}" for number in range(count)]
        await store.queue.enqueue(
            Discovered(job, [Item(key, "https://shop.test") for key in keys], AT)
        )
        for start in range(0, count, 10):
            await asyncio.gather(*(write(store, job, key) for key in keys[start : start + 10]))
        # The line and its end together, or two processes that answer together share a line.
        print(f"{await work_off(store, job, name)}\n", end="", flush=True)  # noqa: T201 - the answer


def start(address: str, job: str, name: str, count: int) -> None:
    asyncio.run(main(address, job, name, count))


if __name__ == "__main__":
    # Forked before anything is opened: they share what was imported, and nothing else.
    context = multiprocessing.get_context("fork")
    said = sys.argv[1:3]
    processes = [
        context.Process(target=start, args=(*said, f"p{number}", int(sys.argv[4])))
        for number in range(int(sys.argv[3]))
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))
