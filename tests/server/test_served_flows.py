"""Flows in the server: scheduled, run in child processes, and continued after a kill."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

from longline.config.settings import Settings
from longline.server.flow_part import FlowLaunches
from longline.storage.scheduling.flows import FlowRun, FlowState
from longline.storage.scheduling.launches import LaunchLimits, NewLaunch
from longline.storage.store import open_store
from tests.server.served_home import COMMAND, ServedHome
from tests.servers import until
from tests.virtual import EPOCH, VirtualClock

FLOW = """
flow: nightly
params: {waits: -1}
steps:
  - {name: steered, run: {source: steered.py, set: {waits: '{params.waits}'}}}
  - {name: publish, export: {to: out.csv, source: steered}, undo: restore}
"""


def flows_of(home: ServedHome) -> list[FlowRun]:
    return home.read(lambda store: store.flows.list())


def given(folder: Path) -> ServedHome:
    """Return a home with a flow, whose source waits if asked to."""
    home = ServedHome(folder)
    (folder / "flows").mkdir()
    (folder / "flows" / "nightly.yaml").write_text(FLOW)
    home.source.rename(folder / "flows" / "steered.py")
    return home


def detach(home: ServedHome) -> None:
    """Leave a run of the flow, which waits at an item, to a server."""
    words = [*COMMAND, "flow", "run", "nightly", "--param", "waits=5", "--detach"]
    env = {**os.environ, "LONGLINE_HOME": str(home.home)}
    subprocess.run(words, env=env, cwd=home.folder, check=True)


def test_a_scheduled_flow_runs_to_its_end(tmp_path: Path) -> None:
    home = given(tmp_path)
    (tmp_path / "longline.yaml").write_text("schedules:\n  often: {flow: nightly, every: 2s}\n")

    with home.serving():
        until(
            lambda: any(run.state is FlowState.COMPLETE for run in flows_of(home)),
            "the end of a flow",
        )

    launches = home.read(lambda store: store.launches.list(origin="schedule/often"))
    assert {one.kind for one in launches} == {"flow"}
    assert len((tmp_path / "flows" / "out.csv").read_text().splitlines()) == 13


def test_a_flow_goes_on_after_its_server_was_killed(tmp_path: Path) -> None:
    home = given(tmp_path)
    folder = tmp_path / "flows"
    detach(home)
    with home.serving() as process:
        until(lambda: bool(list(folder.glob("waits*"))), "the job of the flow")
        process.send_signal(signal.SIGKILL)
        process.wait()
    (folder / "go").touch()

    with home.serving():
        until(lambda: not flows_of(home)[0].is_open, "the end of the flow")

    (flow,) = flows_of(home)
    assert flow.state is FlowState.COMPLETE, flow.reason
    assert len(home.read(lambda store: store.jobs.list())) == 1


def test_one_pass_of_a_server_ends_the_open_flows(tmp_path: Path) -> None:
    home = given(tmp_path)
    (tmp_path / "flows" / "go").touch()
    detach(home)

    with home.serving("--once") as process:
        process.wait()

    assert [run.state for run in flows_of(home)] == [FlowState.COMPLETE]


async def test_a_flow_whose_launch_was_cancelled_is_stopped(tmp_path: Path) -> None:
    file, stop = tmp_path / "x.yaml", asyncio.Event()
    file.write_text("flow: x\nsteps: [{name: ok, approve: Publish?}]\n")
    stop.set()
    with open_store(f"sqlite:///{tmp_path}/longline.sqlite") as store:
        placed = NewLaunch("flow", "x", {"flow": str(file)}, "test", EPOCH)
        number = await store.launches.place(placed)
        (leased,) = await store.launches.lease("me", EPOCH, EPOCH + 20, LaunchLimits())
        await store.launches.cancel(number, EPOCH, "a test")

        await FlowLaunches(store, VirtualClock(), Settings(home=tmp_path)).run(leased, "me", stop)

        (run,) = await store.flows.list()
    assert run.stop is not None
