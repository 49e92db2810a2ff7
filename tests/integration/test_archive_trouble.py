"""An archive that takes no more ends the run, as a full database does; nothing is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from longline.core.errors import StoreFull
from longline.core.model import OPEN_STATES, ItemState
from longline.http.archive.records import WarcFile
from longline.http.archive.warc import open_warc
from longline.http.messages import Request
from longline.orchestrator import Orchestrator
from tests.scripted_site import ScriptedSite


async def test_a_full_archive_stops_the_job_and_fails_no_item(
    site: ScriptedSite,
    make_orchestrator: Callable[..., Orchestrator],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(10):
        site.says(f"/item/{number}", "more" if number == 5 else f"page {number}")
    append = WarcFile.append
    room = [200_000]

    def full(file: WarcFile, members: Sequence[bytes]) -> None:
        room[0] -= 50_000
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(file, members)

    monkeypatch.setattr(WarcFile, "append", full)
    # One request a second, so that each answer is written by itself.
    async with make_orchestrator(rate=1.0, burst=1, archive=True, concurrency=1) as orchestrator:
        with pytest.raises(StoreFull) as stopped:
            await orchestrator.execute()
        (job,) = await orchestrator.store.jobs.list()
        finished = await orchestrator.store.queue.finished(job.id)

    async with open_warc(tmp_path / "archive") as archive:
        kept = [await archive.find(job.id, Request(row["url"])) for row in finished]
    assert stopped.value.exit_code == 4
    assert job.state in OPEN_STATES
    assert {row["state"] for row in finished} <= {ItemState.STORED}
    assert len(finished) < 10
    assert None not in kept
