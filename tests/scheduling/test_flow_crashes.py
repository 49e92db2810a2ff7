"""A flow that is killed at any point ends complete or compensated, with each effect once or undone.

The points are those of `crash_points.py`. `bench/proof_flows.py` does the same with real kills, on
both databases.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from longline.export.export import ExportRequest
from longline.export.previous import find_previous, keep_previous, restore_previous
from longline.scheduling import flow_runner
from longline.scheduling.flow import load_flow
from longline.storage.query import RecordQuery
from longline.storage.scheduling.flows import FlowRun
from tests.scheduling.crash_points import Crash, CrashPoints
from tests.scheduling.flows import World
from tests.scheduling.saga import Files, Receiver, file_problems, saga, snapshot
from tests.scripted_site import ScriptedSite

SECRET = "whsec_" + "c2VjcmV0" * 4


@contextmanager
def crashing(points: CrashPoints) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        points.instrument(patch.setattr)
        yield


async def perform_with_crash(world: World, run: FlowRun, points: CrashPoints) -> None:
    """Perform a run until it ends or crashes."""
    try:
        with crashing(points):
            await world.perform(run)
    except BaseExceptionGroup as several:
        if several.subgroup(Crash) is None:
            raise


async def perform_again(world: World, run: FlowRun) -> FlowRun:
    """Perform a run whose process has crashed; it is known to be dead, as on the same machine."""
    crashed = {*await world.store.flows.owners(), *await world.store.launches.owners()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_runner, "dead_among", lambda owners: [*crashed.intersection(owners)])
        return await world.perform(run)


async def problems_of(
    world: World, run: FlowRun, prices: tuple[int, int], before: Files
) -> list[str]:
    """Return what is wrong after a run that has ended; `prices` are the old and the new one."""
    price = prices[run.state == "complete"]
    has_job = "shop" in await world.states(run)
    price = price if has_job else 100
    found = file_problems(world.folder, run.id, price, before, run.state)
    rows = await world.store.records.list(RecordQuery())
    if {row["data"]["price"] for row in rows if row["gone_at"] is None} != {price}:
        found.append("records")
    return found


EFFECTS = ("first", "new", "apply", "tell", "look")
RECORDS = ("shop", "look")


@pytest.mark.parametrize("ends", ["complete", "compensated"])
@pytest.mark.parametrize("only", [EFFECTS, RECORDS], ids=["effects", "records"])
async def test_a_flow_survives_a_crash_at_any_point(
    world: World,
    site: ScriptedSite,
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
    only: tuple[str, ...],
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    receiver = Receiver()

    async def answer(request: web.Request) -> web.Response:
        receiver.receive(request.headers["webhook-id"], await request.read())
        return web.Response()

    site.answers["/hook"] = answer
    await world.run(
        "flow: before\nsteps: [{name: shop, run: {source: shop.py, set: {price: 100}}}]\n"
    )
    flow = load_flow(str(saga(world.folder, f"{site.url}/hook", only=only)))
    await world.run(flow, ends="complete", price=100)
    dry = CrashPoints()
    await perform_with_crash(world, await world.start(flow, ends=ends, price=101), dry)
    price = 101 if ends == "complete" else 100
    wrong: dict[str, list[str]] = {}
    for number, name in enumerate(dry.names):
        before = snapshot(world.folder)
        run = await world.start(flow, ends=ends, price=price + 1)
        await perform_with_crash(world, run, CrashPoints(number))
        ended = await perform_again(world, run)
        problems = await problems_of(world, ended, (price, price + 1), before)
        expected = ["do", "undo"][: 1 + (ends == "compensated")] if "tell" in only else []
        if receiver.applied(run.id) != expected:
            problems.append("webhook")
        if problems or ended.state != ends:
            wrong[f"{number} {name}"] = [ended.state, *problems, str(ended.reason)]
        price += ends == "complete"

    assert wrong == {}
    assert len(dry.names) > 15


# A kill, unlike an exception, gives the process no time to remove its draft.
KILLED = """
import os, sys
from pathlib import Path
from longline.export.export import ExportRequest
from longline.export.previous import find_previous, keep_previous

Path.rename = lambda path, target: os._exit(9)
request = ExportRequest(sys.argv[1])
keep_previous(request, find_previous(request, "export"))
"""


def test_a_kill_while_a_file_is_kept_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "first.csv"
    path.write_text("old")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    request = ExportRequest(str(path))
    reference = find_previous(request, "export")

    keep_previous(request, reference)
    restore_previous(request, reference)

    assert killed.returncode == 9
    assert [one.name for one in tmp_path.iterdir()] == ["first.csv"]
