"""Interrupted `longline up` and `cluster_running` leave nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from longline.core.errors import HomeUnwritable
from longline.services.cluster import ClusterOptions, cluster_running
from longline.services.processes import Launch, ServicesState, find_process, launch
from tests.servers import until
from tests.services.homes import Home, working_for

BLOCK = """
import sys, time
from pathlib import Path
from longline.config.settings import Settings
from longline.services.cluster import cluster_running
from longline.services.cluster import ClusterOptions

with cluster_running(Settings(home=Path(sys.argv[1])), ClusterOptions(workers=0)):
    print("running", flush=True)
    time.sleep(60)
"""


def test_up_replaces_processes_of_a_killed_up(home: Home) -> None:
    command = home.command("up", "--workers", "0", "--postgres")
    with command:
        until(lambda: home.has_started("initdb"), "PostgreSQL's data")
        command.kill()
    left = home.names

    home.up(with_postgres=True)
    parts = home.status()
    home.down()

    assert left == ["redis", "initdb"]
    assert (parts["redis"].is_healthy, parts["postgres"].is_healthy) == (True, True)
    assert working_for(home.path) == []


def test_down_stops_processes_of_a_killed_up(home: Home) -> None:
    command = home.command("up", "--workers", "0", "--postgres")
    with command:
        until(lambda: home.has_started("initdb"), "PostgreSQL's data")
        command.kill()

    home.down()

    assert working_for(home.path) == []
    assert home.record == ServicesState()


def test_a_signal_during_up_stops_what_it_started(home: Home) -> None:
    command = home.command("up", "--workers", "0", "--postgres")
    with command:
        until(lambda: home.has_started("initdb"), "PostgreSQL's data")
        command.send_signal(signal.SIGINT)
        result, _ = command.communicate(timeout=60)

    assert command.returncode == 130
    assert [line.split()[:1] for line in result.splitlines()].count(["redis"]) == 2  # up and down
    assert working_for(home.path) == []
    assert home.record == ServicesState()


def test_no_process_starts_before_it_is_recorded(home: Home) -> None:
    home.path.mkdir()
    made = home.path / "made"
    home.file.path.mkdir()  # so that nothing can be recorded

    with pytest.raises(HomeUnwritable):
        launch(Launch("redis", ["touch", str(made)], home.path / "logs" / "a.log"), home.file)
    home.file.path.rmdir()

    assert working_for(home.path) == []
    assert not made.exists()


def test_a_block_stops_the_services_it_started(home: Home) -> None:
    with cluster_running(home.settings(), ClusterOptions(workers=0)) as started:
        was_there = home.answers()

    assert was_there
    assert [one.name for one in started.processes] == ["redis"]
    assert working_for(home.path) == []


def test_a_failing_block_stops_the_services_it_started(home: Home) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        cluster_running(home.settings(), ClusterOptions(workers=0)),
    ):
        raise ZeroDivisionError

    assert home.record == ServicesState()


def test_a_block_does_not_stop_services_that_ran_before(home: Home) -> None:
    home.up()

    with cluster_running(home.settings(), ClusterOptions(workers=0)) as started:
        pass

    assert started.processes == ()
    assert home.answers()


def test_a_block_that_gets_a_signal_stops_its_services(home: Home) -> None:
    words = [sys.executable, "-c", BLOCK, str(home.path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        entry = home.entry("redis")
        process.terminate()
        code = process.wait(60)

    assert code == 143
    assert find_process(entry) is None
    assert home.record == ServicesState()
