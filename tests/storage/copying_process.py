"""A process that copies one database into another.

Usage: copying_process.py SOURCE TARGET [TABLE]. Started by tests of copying. With TABLE it says
when it is in the middle of that one and waits there to be killed; without, it prints the most
memory that it had, in bytes.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time

from longline.storage.copy import CopyEnd, DatabaseCopy
from longline.storage.database import open_database


def stop_at(table: str, wanted: str) -> None:
    if table == wanted:
        print(f"in the middle of {table}", flush=True)  # noqa: T201 - the answer of this program
        time.sleep(600)


async def main(source: str, target: str, table: str = "") -> None:
    copying = DatabaseCopy(
        CopyEnd(open_database(source)),
        CopyEnd(open_database(target)),
        dead_among=list,
        on_step=lambda name, _rows: stop_at(name, table),
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await copying.run()
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(more * 1024)  # noqa: T201 - the answer of this program


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
