"""Many sites: side by side or one by one, none fails another; and all of it without a loop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from longline.cli.main import cli
from longline.config.settings import Settings
from longline.core.errors import BadOption, UnknownJob
from longline.core.model import ItemState, JobState
from longline.engine.progress import SiteStatus
from longline.orchestrator import NothingToRetry, Orchestrator
from longline.sync import SyncOrchestrator
from tests.virtual import VirtualClock

SITE = """
import asyncio

from longline import Item, Source, layer

class {name}(Source):
    name = "{name}"

    async def discover(self, visit):
        for number in range(4):
            yield Item(str(number), "https://{name}.test")

    @layer()
    async def page(self, visit):
        await visit.clock.sleep({seconds})
        return {{"n": visit.item.key}}
"""


@pytest.fixture
def sites(tmp_path: Path) -> list[str]:
    paths = []
    for name, seconds in (("one", 10), ("two", 20), ("three", 30)):
        path = tmp_path / f"{name}.py"
        path.write_text(SITE.format(name=name, seconds=seconds))
        paths.append(str(path))
    return paths


def orchestrator_in(home: Path, clock: VirtualClock) -> Orchestrator:
    return Orchestrator(settings=Settings(home=home, concurrency=4), clock=clock)


async def test_parallel_sites_take_as_long_as_the_slowest(
    sites: list[str], tmp_path: Path, clock: VirtualClock
) -> None:
    began = clock.now()
    async with orchestrator_in(tmp_path, clock) as longline:
        ends = await longline.scrape_all_sites(sites, parallel=True)

    assert [end.report and end.report.state for end in ends] == [JobState.COMPLETE] * 3
    assert 30 <= clock.now() - began < 40


async def test_sequential_sites_take_as_long_as_all_together(
    sites: list[str], tmp_path: Path, clock: VirtualClock
) -> None:
    began = clock.now()
    async with orchestrator_in(tmp_path, clock) as longline:
        await longline.scrape_all_sites(sites, parallel=False)

    assert clock.now() - began >= 60


async def test_a_site_that_cannot_run_does_not_affect_others(
    sites: list[str], tmp_path: Path, clock: VirtualClock
) -> None:
    async with orchestrator_in(tmp_path, clock) as longline:
        broken, sound = await longline.scrape_all_sites(["no-such-site", sites[0]])

    assert broken.report is None
    assert broken.exit_code == 2
    assert sound.exit_code == 0


async def test_a_site_whose_finished_hook_fails_does_not_affect_others(
    sites: list[str], tmp_path: Path, clock: VirtualClock, logged: list[str]
) -> None:
    odd = tmp_path / "odd.py"
    end = "\n    async def finished(self, visit):\n        raise ZeroDivisionError\n"
    odd.write_text(SITE.format(name="odd", seconds=1) + end)

    async with orchestrator_in(tmp_path, clock) as longline:
        ends = await longline.scrape_all_sites([str(odd), sites[0]])

    assert [end.exit_code for end in ends] == [0, 0]
    assert "ZeroDivisionError" in logged[0]


async def test_no_site_starts_after_an_interrupt(
    sites: list[str], tmp_path: Path, clock: VirtualClock
) -> None:
    async with orchestrator_in(tmp_path, clock) as longline:
        ends = await longline.scrape_all_sites(
            sites,
            parallel=False,
            hooks_of=lambda _: {"on_progress": lambda _: longline.interrupt()},
        )

    assert [end.exit_code for end in ends] == [130, 130, 130]
    assert [end.report is None for end in ends] == [False, True, True]


BROKEN = {
    "name.yaml": "manifest: html\nstart: https://a.test\n",
    "yaml.yaml": "manifest: [\n",
    "module.yaml": "source: there.is.none:Source\n",
    "file.yaml": "source: missing.py\n",
    "exits.yaml": "source: exits.py\n",
    "raises.yaml": "source: raises.py\n",
    "twice.yaml": (
        "manifest: api\nname: a_good\nbase_url: https://a.test\n"
        "endpoints: {all: {path: /all, records: items, key: id}}\n"
    ),
    "secret.yaml": "source: {good}\nauth: {{kind: bearer, token: {{env: NOT_SET_ANYWHERE}}}}\n",
}


@pytest.fixture
def folder(tmp_path: Path, sites: list[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one good job file, and broken ones of each kind."""
    folder = tmp_path / "sources"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "exits.py").write_text("raise SystemExit(3)")
    (folder / "raises.py").write_text("1 / 0")
    (folder / "a_good.yaml").write_text(f"source: {sites[0]}\n")
    for name, text in BROKEN.items():
        (folder / name).write_text(text.format(good=sites[0]) if "secret" in name else text)
    return folder


async def test_invalid_files_do_not_stop_the_others(
    folder: Path, tmp_path: Path, clock: VirtualClock
) -> None:
    settings = Settings(home=tmp_path, sources=(folder,))
    async with Orchestrator(settings=settings, clock=clock) as longline:
        ends = await longline.scrape_all_sites()

    good, *others = sorted(ends, key=lambda end: end.source)
    assert good.report is not None
    assert good.report.state is JobState.COMPLETE
    assert {Path(end.source).name for end in others} == set(BROKEN)
    assert all(end.error is not None and end.exit_code == 2 for end in others)


async def test_all_invalid_files_are_reported(
    folder: Path, tmp_path: Path, clock: VirtualClock
) -> None:
    (folder / "a_good.yaml").unlink()
    (folder / "twice.yaml").unlink()
    settings = Settings(home=tmp_path, sources=(folder,))
    async with Orchestrator(settings=settings, clock=clock) as longline:
        ends = await longline.scrape_all_sites()

    assert [end.exit_code for end in ends] == [2] * (len(BROKEN) - 1)


def test_run_all_reports_broken_files_and_exits_with_2(folder: Path, tmp_path: Path) -> None:
    (folder / "quick.py").write_text(SITE.format(name="quick", seconds=0))
    (folder / "a_good.yaml").write_text("source: quick.py\n")
    runner = CliRunner(env={"LONGLINE_SOURCES": str(folder)})

    ran = runner.invoke(cli, ["run", "--all", "--home", str(tmp_path), "--json"])

    shown = json.loads(ran.stdout)
    states = {site["source"]: site["state"] for site in shown["sites"]}
    assert (ran.exit_code, shown["exit_code"]) == (2, 2)
    assert states.pop("quick") == "complete"
    assert states == {name.removesuffix(".yaml"): "failed" for name in BROKEN}
    assert all(site.get("error") for site in shown["sites"] if site["source"] != "quick")


async def test_an_empty_list_of_sites_is_refused(tmp_path: Path, clock: VirtualClock) -> None:
    async with orchestrator_in(tmp_path, clock) as longline:
        with pytest.raises(BadOption) as caught:
            await longline.scrape_all_sites()

    assert caught.value.option == "--all"


async def test_the_progress_of_a_site_comes_from_the_database(
    sites: list[str], tmp_path: Path, clock: VirtualClock
) -> None:
    async with orchestrator_in(tmp_path, clock) as longline:
        report = await longline.execute(sites[0])
        progress = await longline.get_site_progress(report.job)
        ended = await longline.wait_for_all_sites([report.job])

    assert progress.status is SiteStatus.COMPLETE
    assert (progress.total_items, progress.result_count) == (4, 4)
    assert ended == {report.job: progress}


async def test_waiting_for_an_unknown_job_is_refused(tmp_path: Path, clock: VirtualClock) -> None:
    async with orchestrator_in(tmp_path, clock) as longline:
        with pytest.raises(UnknownJob):
            await longline.wait_for_all_sites(["no-such-job"])


def test_without_an_event_loop_each_call_returns_when_it_is_done(tmp_path: Path) -> None:
    path = tmp_path / "quick.py"
    path.write_text(SITE.format(name="quick", seconds=0))

    with SyncOrchestrator(home=tmp_path) as longline:
        report = longline.execute(str(path))
        progress = longline.get_site_progress(report.job)
        records, jobs = longline.records(limit=3), longline.jobs()

    assert report.state is JobState.COMPLETE
    assert progress.result_count == 4
    assert (len(records), len(jobs)) == (3, 1)
    assert all(row["key"] in records._repr_html_() for row in records)
    assert report.job in report._repr_html_()
    assert report.job in jobs._repr_html_()


def test_an_error_inside_with_goes_through_and_everything_is_closed(tmp_path: Path) -> None:
    longline = SyncOrchestrator(home=tmp_path)

    with pytest.raises(UnknownJob), longline:
        longline.get_site_progress("no-such-job")

    with pytest.raises(RuntimeError, match="async with"):
        _ = longline.orchestrator.store
    with pytest.raises(RuntimeError, match="with SyncOrchestrator"):
        longline.jobs()


async def test_a_call_needs_a_source(tmp_path: Path, clock: VirtualClock) -> None:
    async with Orchestrator(home=tmp_path, clock=clock) as longline:
        with pytest.raises(BadOption) as caught:
            await longline.execute()

    assert caught.value.option == "source"


async def test_a_file_is_executed_once_in_a_run_and_again_when_it_has_changed(
    tmp_path: Path, clock: VirtualClock
) -> None:
    path, executed = tmp_path / "counted.py", tmp_path / "executed"
    count = f"with open({str(executed)!r}, 'a') as file:\n    file.write('x')\n"
    path.write_text(SITE.format(name="counted", seconds=0) + count)

    async with orchestrator_in(tmp_path, clock) as longline:
        await longline.execute(str(path))
        assert executed.read_text() == "x"

        path.write_text(path.read_text() + "\n# changed\n")
        await longline.execute(str(path), fresh=True)

    assert executed.read_text() == "xx"


async def test_a_retry_is_placed_for_the_job_of_the_failed_items(
    tmp_path: Path, clock: VirtualClock
) -> None:
    source = tmp_path / "broken.py"
    source.write_text(SITE.format(name="broken", seconds="'wrong'"))
    async with orchestrator_in(tmp_path, clock) as longline:
        report = await longline.execute(str(source))

        launch = await longline.launch_retry(report.job)

        counts = await longline.store.queue.counts(report.job)
        with pytest.raises(NothingToRetry):
            await longline.launch_retry(report.job)
    assert launch is not None
    assert (launch.target, counts[ItemState.QUEUED]) == (report.job, 4)
