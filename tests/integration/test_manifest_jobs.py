"""A job made of a manifest keeps it, whatever becomes of the file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from longline.core.errors import BadFile
from longline.core.model import JobState
from longline.engine.report import JobReport
from longline.orchestrator import Orchestrator
from longline.storage.query import RecordQuery
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

HTML = {"Content-Type": "text/html"}
MANIFEST = """
manifest: html
name: shop
rate: unlimited
start: "{site}/list"
items: a
fields:
  title: {selector}
"""


@pytest.fixture
def file(site: ScriptedSite, tmp_path: Path) -> Path:
    links = "".join(f'<a href="/p/{n}">{n}</a>' for n in range(5))
    site.says("/list", f"<html>{links}</html>", headers=HTML)
    for n in range(5):
        site.says(f"/p/{n}", f"<h1>first {n}</h1><h2>second {n}</h2>", headers=HTML)
    path = tmp_path / "shop.yaml"
    write(path, site, "h1")
    return path


def write(path: Path, site: ScriptedSite, selector: str) -> None:
    text = MANIFEST.replace("{site}", site.url).replace("{selector}", selector)
    path.write_text(text, "utf-8")


async def interrupted(longline: Orchestrator, path: Path) -> JobReport:
    return await longline.execute(str(path), on_start=lambda _job, _new: longline.interrupt())


async def titles(longline: Orchestrator) -> list[str]:
    rows = await longline.store.records.list(RecordQuery(source="shop"))
    return sorted(row["data"]["title"] for row in rows)


async def test_a_job_that_is_resumed_does_not_see_an_edit(
    site: ScriptedSite, clock: VirtualClock, file: Path
) -> None:
    async with Orchestrator(home=file.parent / "home", clock=clock) as longline:
        begun = await interrupted(longline, file)
        write(file, site, "h2")
        resumed = await longline.resume(begun.job)
        found = await titles(longline)

    assert (begun.state, resumed.state) == (JobState.PAUSED, JobState.COMPLETE)
    assert found == [f"first {n}" for n in range(5)]


async def test_a_manifest_given_to_the_orchestrator_itself_is_kept_too(
    site: ScriptedSite, clock: VirtualClock, file: Path
) -> None:
    async with Orchestrator(str(file), home=file.parent / "home", clock=clock) as longline:
        begun = await longline.execute(on_start=lambda _job, _new: longline.interrupt())
        write(file, site, "h2")
        await longline.resume(begun.job)
        found = await titles(longline)

    assert found == [f"first {n}" for n in range(5)]


async def test_a_running_job_sees_none_of_a_hundred_edits_half_files_and_reverts(
    site: ScriptedSite, clock: VirtualClock, file: Path
) -> None:
    for n in range(200):
        site.says(f"/p/{n}", f"<h1>first {n}</h1><h2>second {n}</h2>", headers=HTML)
    site.says("/list", "".join(f'<a href="/p/{n}">{n}</a>' for n in range(200)), headers=HTML)
    whole = file.read_text("utf-8")

    async def edit() -> None:
        for _ in range(100):
            for text in (whole[:-20], whole.replace("h1", "h2"), whole):
                file.write_text(text, "utf-8")
            await clock.sleep(0.1)

    async with Orchestrator(home=file.parent / "home", clock=clock) as longline:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(longline.execute(str(file), {"rate": 20.0}))
            group.create_task(edit())
        found = await titles(longline)

    assert running.result().state is JobState.COMPLETE
    assert running.result().seconds > 9  # it was at work all the while
    assert found == sorted(f"first {n}" for n in range(200))


async def test_a_run_after_an_edit_is_a_job_of_its_own(
    site: ScriptedSite, clock: VirtualClock, file: Path
) -> None:
    async with Orchestrator(home=file.parent / "home", clock=clock) as longline:
        begun = await interrupted(longline, file)
        write(file, site, "h2")
        another = await longline.execute(str(file))
        found = await titles(longline)

    assert another.job != begun.job
    assert found == [f"second {n}" for n in range(5)]


async def test_a_half_written_file_stops_only_who_reads_it(clock: VirtualClock, file: Path) -> None:
    async with Orchestrator(home=file.parent / "home", clock=clock) as longline:
        begun = await interrupted(longline, file)
        file.write_text(file.read_text("utf-8")[:40], "utf-8")
        with pytest.raises(BadFile, match=r"shop\.yaml"):
            await longline.execute(str(file))
        resumed = await longline.resume(begun.job)

    assert resumed.state is JobState.COMPLETE


async def test_the_same_manifest_goes_on_by_whatever_name_it_is_called(
    clock: VirtualClock, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)

    async with Orchestrator(home=file.parent / "home", clock=clock) as longline:
        begun = await interrupted(longline, file)
        again = await longline.execute("./shop.yaml")

    assert (again.job, again.state) == (begun.job, JobState.COMPLETE)
