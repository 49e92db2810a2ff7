"""A large answer of an API does not hold up the event loop."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from longline.core.json import read_json
from tests.scripted_site import ScriptedSite
from tests.sources.api_bench import Bench
from tests.virtual import VirtualClock

MANIFEST = """
endpoints:
  items: {path: /items, records: items, key: id}
"""


@pytest.mark.parametrize(("count", "is_apart"), [(10, False), (100_000, True)])
async def test_only_a_large_answer_is_parsed_in_a_thread(
    site: ScriptedSite,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    is_apart: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    threads: set[int] = set()

    def read(text: Any) -> Any:
        threads.add(threading.get_ident())
        return read_json(text)

    monkeypatch.setattr("longline.http.messages.read_json", read)
    records = ",".join(f'{{"id":{number}}}' for number in range(count))
    site.says("/items", f'{{"items":[{records}]}}')
    bench = Bench(site, clock)

    items = await bench.find(MANIFEST)

    await bench.closing.aclose()
    assert len(items) == count
    assert (threads != {threading.get_ident()}) == is_apart
