"""Whether a child died alone, or with the worker it belongs to."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from longline.engine.owner import dead_among, killed_among, living_among, this_child, this_host

HOST = this_host()
PARENT = psutil.Process()
GONE = "999999999:1.00"


def child_of(parent: str, host: str = HOST) -> str:
    """Return the name of a child that is gone."""
    return f"{host}:{GONE}:abcdef:{parent}"


LIVING = f"{PARENT.pid}:{PARENT.create_time():.2f}"


def test_a_living_child_is_neither_dead_nor_killed() -> None:
    owner = this_child()

    assert dead_among([owner]) == []
    assert killed_among([owner]) == []


def test_only_of_this_host_anybody_is_known_to_live() -> None:
    owner = this_child()
    elsewhere = owner.replace(HOST, "elsewhere")

    assert living_among([owner, elsewhere, child_of(LIVING)]) == [owner]


def test_every_piece_of_work_has_a_name_of_its_own() -> None:
    assert this_child() != this_child()


@pytest.mark.parametrize(
    ("owner", "is_killed"),
    [
        (child_of(LIVING), True),
        (child_of(GONE), False),
        (child_of(f"{PARENT.pid}:1.00"), False),
        (child_of(LIVING, "elsewhere"), False),
        (f"{HOST}:{GONE}:abcdef", False),
    ],
    ids=["parent lives", "parent gone", "parent is another", "other host", "no child"],
)
def test_only_a_child_whose_parent_lives_on_was_killed(owner: str, *, is_killed: bool) -> None:
    assert killed_among([owner]) == ([owner] if is_killed else [])


def test_a_real_child_that_ended_differs_from_a_live_one() -> None:
    code = "from longline.engine.owner import this_child; print(this_child())"
    ended = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()

    assert ended.split(":")[4] == str(os.getpid())
    assert killed_among([ended]) == [ended]
