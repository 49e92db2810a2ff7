"""JobSpec: bounds of every figure, and what makes two runs the same job."""

from __future__ import annotations

import math
from typing import Any

import pytest

from longline.config.job_spec import make_spec
from longline.core.errors import BadOption
from tests.config.messages import absent


@pytest.mark.parametrize(
    ("rate", "kept"), [(2, 2.0), (0.001, 0.001), ("3.5", 3.5), ("unlimited", "unlimited")]
)
def test_a_rate_is_a_number_or_unlimited(rate: Any, kept: Any) -> None:
    assert make_spec({"source": "n8n", "rate": rate}).rate == kept


@pytest.mark.parametrize("rate", [0, -1, -0.0, math.nan, math.inf, -math.inf, "fast", [], "0"])
def test_a_rate_that_is_neither_is_refused(rate: Any) -> None:
    with pytest.raises(BadOption) as caught:
        make_spec({"source": "n8n", "rate": rate})

    assert caught.value.option == "rate"
    assert absent(caught.value.problem, "0 'auto' 'unlimited'") == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", 0),
        ("limit", -1),
        ("limit", 1.5),
        ("burst", 0),
        ("concurrency", 0),
        ("concurrency", 1001),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", math.nan),
        ("retry.attempts", {"attempts": 0}),
        ("retry.base", {"base": -1}),
        ("retry", {"base": 5, "max": 1}),
        ("source", ""),
        ("source", None),
        ("set", "x"),
        ("params", [1]),
        ("ignore_robots", "mirror.test"),
    ],
)
def test_a_value_out_of_bounds_is_reported_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(BadOption) as caught:
        make_spec({"source": "n8n", name: value})

    assert caught.value.option == name


def test_an_unknown_name_is_reported_with_those_there_are() -> None:
    with pytest.raises(BadOption) as caught:
        make_spec({"source": "n8n", "speed": 5})

    assert caught.value.option == "speed"
    assert absent(caught.value.problem, "source set rate limit") == []


def test_how_fast_a_job_runs_does_not_make_it_another_job() -> None:
    slow = make_spec({"source": "n8n", "limit": 5, "rate": 1, "burst": 1, "timeout": 9})
    fast = make_spec({"source": "n8n", "limit": 5, "rate": "unlimited", "concurrency": 99})

    assert slow.identity() == fast.identity()


@pytest.mark.parametrize("changes", [{"limit": 6}, {"set": {"a": 2}}, {"params": {"q": "x"}}])
def test_what_is_collected_makes_it_another_job(changes: dict[str, Any]) -> None:
    one = {"source": "n8n", "limit": 5, "set": {"a": 1}}

    assert make_spec(one).identity() != make_spec({**one, **changes}).identity()


def test_a_snapshot_makes_the_same_spec_again() -> None:
    spec = make_spec(
        {"source": "n8n", "set": {"a": 1}, "rate": 2.5, "ignore_robots": ["mirror.test"]}
    )

    assert make_spec(spec.snapshot()) == spec
