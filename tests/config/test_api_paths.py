"""Paths with names alone are looked up directly, and find what jmespath finds."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from typing import Any

import jmespath
import pytest

from longline.config.expressions import find

PATHS = ["id", "a.b", "a.b.c", '"x y".z', '"a.b"', "a[0]", "a[].b", "@", "a.[b]", "a.*", "a.b | c"]
VALUES: list[Any] = [
    None,
    7,
    "text",
    [],
    [{"id": 1}],
    {},
    {"id": 0, "a": None},
    {"a": {"b": {"c": False}}},
    {"a": [{"b": 1}, {"b": 2}]},
    {"x y": {"z": "found"}, "a.b": 3, "a": "text"},
]


@pytest.mark.parametrize(("path", "value"), list(product(PATHS, VALUES)))
def test_a_path_finds_what_jmespath_finds(path: str, value: Any) -> None:
    """A direct look-up must not differ from the language that manifests are written in."""
    assert find(path, value) == jmespath.search(path, value)


def test_a_name_costs_less_than_a_walk_by_jmespath() -> None:
    """Each record of a long answer is asked for its key: both sides in one run, alternating."""
    record = {"id": 1, "name": "x"}
    walk = jmespath.compile("id").search

    def seconds(call: Callable[[], Any]) -> float:
        began = time.perf_counter()
        for _ in range(5_000):
            call()
        return time.perf_counter() - began

    turns = [(seconds(lambda: find("id", record)), seconds(lambda: walk(record))) for _ in range(5)]
    assert min(ours for ours, _ in turns) < min(theirs for _, theirs in turns) / 2
