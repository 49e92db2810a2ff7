"""JMESPath and regular expressions that users write: results as of the libraries, never endless."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import jmespath
import pytest

from longline.config.expressions import find, user_pattern
from longline.core.errors import BadOption, UnexpectedShape
from longline.core.model import ItemState
from longline.orchestrator import Orchestrator
from longline.pipeline.json_schema import validator_of
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

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


ENDLESS = r"(?:a|aa)+$"
TEXT = "a" * 60 + "!"

SLOW = [
    (ENDLESS, TEXT),
    (r"(a|a)*b$", "a" * 60),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 200),
    ("a?" * 40 + "a" * 40, "a" * 39),
    (r"(\w+\s?)*$", "word " * 5_000 + "!"),
    (r"\d+\d+\d+x", "1" * 100_000),
]


@pytest.mark.parametrize(("pattern", "text"), SLOW)
def test_no_pattern_is_endless(pattern: str, text: str) -> None:
    try:
        found = user_pattern(pattern).search(text)
    except UnexpectedShape as error:
        assert error.where == repr(pattern)  # noqa: PT017  # both ends are right
    else:
        assert found is None or found.end() == len(text)


@pytest.mark.parametrize(
    "text", ["a", "x1y22", "Сграда 12", "-ID4711.html", "", "a\nb", "ß" * 3000]
)
@pytest.mark.parametrize(
    "pattern", [r"\w+", r"(\d+)", r"-ID(\w+)\.html", r"(?<=x)\d", r"(?!a).", r"(.)\1", r"(a|ß)+$"]
)
def test_what_is_found_is_what_re_finds(pattern: str, text: str) -> None:
    ours, theirs = user_pattern(pattern), re.compile(pattern)

    found = [(one[0], ours.first_group(one)) for one in ours.finditer(text)]

    groups = 1 if theirs.groups else 0
    assert found == [(one[0], one[groups] or None) for one in theirs.finditer(text)]
    assert bool(ours.search(text)) == bool(theirs.search(text))


def test_a_wrong_pattern_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="position 0"):
        user_pattern("(a")


def test_a_schema_gives_up_a_pattern_that_is_endless() -> None:
    check = validator_of({"type": "string", "pattern": ENDLESS})

    with pytest.raises(UnexpectedShape):
        list(check.iter_errors(TEXT))


@pytest.mark.parametrize(
    "schema", [{"patternProperties": {ENDLESS: {}}}, {"pattern": "(a"}, {"pattern": "a**"}]
)
def test_a_schema_with_an_unusable_pattern_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(BadOption):
        validator_of(schema)


@pytest.mark.parametrize(
    "manifest",
    [
        'fields: {title: {css: h1, match: "(?:a|aa)+$"}}',
        'fields: {title: h1}\npipeline: [{filter: [{field: title, matches: "(?:a|aa)+$"}]}]',
    ],
)
async def test_an_endless_match_costs_its_item(
    manifest: str, site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    site.says("/", "".join(f"<h3><a href=/p/{n}>x</a></h3>" for n in (1, 2)))
    site.says("/p/1", f"<h1>{TEXT}</h1>")
    site.says("/p/2", "<h1>aa</h1>")
    path = tmp_path / "shop.yaml"
    path.write_text(f"""
manifest: html
name: shop
rate: unlimited
start: {site.url}/
items: h3 a
key: {{url: "/p/(.+)"}}
{manifest}
""")

    async with Orchestrator(str(path), home=tmp_path, clock=clock) as orchestrator:
        report = await orchestrator.execute()
        finished = await orchestrator.store.queue.finished(report.job)

    states = {row["key"]: row["state"] for row in finished}
    assert states == {"1": ItemState.QUARANTINED, "2": ItemState.STORED}
