"""A process that writes to a cache's file; started by test_cache_sqlite.py.

Usage: cache_process.py FILE NAME COUNT. Stores answers, prints a line for each thousand, and then
waits until its input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from multidict import CIMultiDict, CIMultiDictProxy

from longline.http.cache import CacheEntry, HttpCache


def main(path: Path, name: str, count: int) -> None:
    cache = HttpCache(path)
    headers = CIMultiDictProxy(CIMultiDict({"etag": '"1"'}))
    for number in range(count):
        url = f"http://{name}.test/{number}"
        cache.put(CacheEntry(url, "", (), 200, headers, 1.0, 1.0, 1.0, 1.0), url.encode() * 100)
        if number % 1000 == 0:
            cache.flush()
            print(number, flush=True)  # noqa: T201 - the answer of this program
    sys.stdin.read()
    cache.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
