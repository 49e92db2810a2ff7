"""Containers that share the name of a host, and not its pids, do not take each other for dead."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from longline.engine.owner import dead_among, living_among, this_host, this_run

LIVE = "from longline.engine.owner import this_run; print(this_run(), flush=True); input()"
JUDGE = "import sys; from longline.engine.owner import dead_among; print(dead_among(sys.argv[1:]))"
APART = ("unshare", "--pid", "--fork", "--mount-proc")


def can_be_apart() -> bool:
    """Say whether this system lets us have a namespace of pids."""
    if shutil.which("unshare") is None:
        return False
    return not subprocess.run([*APART, "true"], capture_output=True, check=False).returncode


apart = pytest.mark.skipif(not can_be_apart(), reason="no namespaces of pids may be made here")


@contextmanager
def living(*before: str) -> Iterator[str]:
    """Give the owner's name of a process that lives."""
    with subprocess.Popen(
        [*before, sys.executable, "-c", LIVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


@apart
def test_a_living_worker_of_another_container_is_not_dead() -> None:
    with living(*APART) as owner:
        assert owner.startswith(socket.gethostname())
        assert dead_among([owner]) == []
        assert living_among([owner]) == []  # nor is it known to live


@apart
def test_a_worker_outside_a_container_is_not_dead() -> None:
    with living() as owner:
        judged = subprocess.run(
            [*APART, sys.executable, "-c", JUDGE, owner], capture_output=True, text=True, check=True
        )

    assert judged.stdout == "[]\n"


def test_processes_that_see_each_other_have_the_same_host() -> None:
    with living() as owner:
        assert living_among([owner]) == [owner]

    assert dead_among([owner]) == [owner]


@pytest.mark.skipif(sys.platform != "linux", reason="names are as they were elsewhere")
@pytest.mark.parametrize("pid", [os.getpid(), 999_999_999], ids=["ours", "nobody"])
def test_an_owner_by_an_older_name_is_a_stranger(pid: int) -> None:
    old = f"{socket.gethostname()}:{pid}:1.00:abcdef"

    assert dead_among([old]) == []
    assert living_among([old]) == []


def test_a_name_of_a_run_begins_with_its_host() -> None:
    assert this_run().startswith(f"{this_host()}:{os.getpid()}:")
