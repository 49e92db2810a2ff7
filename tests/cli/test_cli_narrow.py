"""Tables in narrow terminals: nothing that matters is cut or missing."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from longline.cli.output import TextTable
from longline.cli.progress import SiteRow, sites_table
from longline.storage.events.events import event_row
from longline.storage.store import open_store
from tests.cli.terminal import Terminal
from tests.storage.given import queued
from tests.virtual import EPOCH

LONG_ID = "boat-listings-of-bulgaria-20261116-002303-094f"


def drawn(what: RenderableType, width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(what)
    return file.getvalue()


def test_a_narrow_table_of_jobs_drops_columns_and_cuts_none() -> None:
    row = SiteRow(LONG_ID, "running", 1234, 40_000, 1200, 34, 3680, 75)

    narrow = drawn(sites_table([row], first="job"), 80)
    wide = drawn(sites_table([row], first="job"), 120)

    assert "…" not in narrow + wide
    assert narrow.splitlines()[1].split() == [LONG_ID, "running", "1,234", "34"]
    assert all(number in wide for number in ("40,000", "1,200", "3,680"))


def test_a_long_name_is_folded() -> None:
    table = TextTable("job", "state")
    table.add(LONG_ID, "running")

    lines = drawn(table, 40).splitlines()

    assert all(len(line) <= 40 for line in lines)
    assert "".join(line.split()[0] for line in lines[1:]) == LONG_ID


def test_a_note_without_room_goes_below_the_table() -> None:
    table = TextTable("part", "state", "note", note="note")
    table.add("redis", "not healthy", "run `longline up`, and [b]look[/b]")
    table.add("sqlite", "healthy", "")

    assert len(drawn(table, 80).splitlines()) == 3
    assert drawn(table, 40).splitlines()[3:] == [" redis: run `longline up`, and ", "[b]look[/b]"]


async def one_with_ends(home: Path) -> None:
    with open_store(f"sqlite:///{home / 'longline.sqlite'}") as store:
        job = await queued(store, "1")
        await store.events.append(
            *(event_row(job.id, EPOCH, "custom.retried", key="1") for _ in range(1200)),
            event_row(job.id, EPOCH, "export.written", output="/srv/all.csv", records=7),
            event_row(job.id, EPOCH, "export.failed", output="/srv/x.csv", reason="no room"),
            event_row(job.id, EPOCH, "source.finished.failed", reason="it raised"),
        )


def test_results_of_worker_exports_are_shown(longline: Terminal, home: Path) -> None:
    home.mkdir()
    asyncio.run(one_with_ends(home))
    (row,) = longline("jobs", "--json").last

    text = longline("jobs", row["job"]).out
    kinds = [event["type"] for event in longline("jobs", row["job"], "--json").last["events"]]

    assert kinds[-3:] == ["export.written", "export.failed", "source.finished.failed"]
    for word in ("/srv/all.csv", '"records":7', "no room", "it raised"):
        assert word in text


def test_dates_are_whole_in_eighty_columns(
    longline: Terminal, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    longline("run", shop, "--set", "bad=1")
    (job,) = longline("jobs", "--json").last

    lines = longline("jobs").out.splitlines()

    assert job["created_at"][:16] in lines[1]
    assert job["reason"] in " ".join(" ".join(lines).split())
