"""Odd arguments, broken homes and closed streams: a slice of `bench/fuzz.py` over all commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.command_tree import commands
from tests.fork_server import ForkServer, Invocation, Result
from tests.fuzzer import CODES, HOMES, Case, Fuzzer, problems
from tests.hostile_data import attacking_site, make_world

SEED = 11
PARTS = 10


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzer]:
    with ForkServer() as server, attacking_site() as url:
        world = make_world(tmp_path_factory.mktemp("fuzz"), url, server)
        yield Fuzzer(SEED, world, server)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_invocation_ends_badly(fuzzer: Fuzzer, part: int) -> None:
    wrong = {
        str(case): (found, result)
        for case in fuzzer.cases(10, part * 10)
        for result, found in [fuzzer.run(case)]
        if found
    }

    assert wrong == {}


def test_the_fuzzer_runs_every_command(fuzzer: Fuzzer) -> None:
    names = set(commands())

    cases = list(fuzzer.cases(len(names)))

    assert {
        name for case in cases for name in names if case.call.words[: len(name)] == name
    } == names


def test_the_same_seed_makes_the_same_cases(fuzzer: Fuzzer) -> None:
    assert list(fuzzer.cases(20)) == list(fuzzer.cases(20))


@pytest.mark.parametrize(
    ("code", "err", "is_hung", "is_well"),
    [
        (0, b"", False, True),
        (2, b"longline: no", False, True),
        (2, b"", False, False),
        (1, b"Traceback (most recent call last):", False, False),
        (1, b"longline: internal error (KeyError)", False, False),
        (120, b"x", False, False),
        (-11, b"x", False, False),
        (-9, b"x", True, False),
    ],
)
def test_the_fuzzer_detects_bad_results(
    code: int, err: bytes, *, is_hung: bool, is_well: bool
) -> None:
    case = Case(1, "sound", Invocation(("jobs",)))

    assert (problems(case, Result(code, b"", err, is_hung, 0.1)) == []) is is_well
    assert {0, 1, 2, 3, 4, 130} == CODES
    assert "sound" in HOMES
