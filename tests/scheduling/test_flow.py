"""Definitions of flows: what a file means, and that mistakes are found when it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.core.errors import BadFile, BadOption
from longline.scheduling.flow import Flow, FrozenFlow, graph_lines, load_flow, mermaid_lines
from tests.scheduling.flows import SHOP, load, write

DIAMOND = """
    flow: diamond
    steps:
      - {name: a, command: [echo, a]}
      - {name: b, command: [echo, b]}
      - {name: c, command: [echo, c], after: a}
      - {name: d, command: [echo, d], after: [b, c]}
"""


def problem(folder: Path, *steps: str, top: str = "") -> BadFile:
    """Return the error of a flow with these steps, each of which is a line of its file."""
    lines = "".join(f"  - {{{step}}}\n" for step in steps)
    write(folder, "shop.py", SHOP)
    path = write(folder, "bad.yaml", f"flow: bad\n{top}steps:\n{lines}")
    with pytest.raises(BadFile) as caught:
        load_flow(str(path))
    return caught.value


def test_a_step_follows_the_one_before_unless_it_says_otherwise(tmp_path: Path) -> None:
    flow = load(tmp_path, DIAMOND)

    assert flow.spec.parents == {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
    assert list(flow.spec.order) == ["a", "b", "c", "d"]
    assert flow.spec.descendants("a") == {"b", "c", "d"}


def test_steps_may_be_written_in_any_order(tmp_path: Path) -> None:
    steps = "[{name: b, command: [b], after: a}, {name: a, command: [a], after: []}]"
    flow = load(tmp_path, f"flow: turned\nsteps: {steps}\n")

    assert list(flow.spec.order) == ["a", "b"]


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        (["name: a, command: [x]", "name: b, command: [x], after: c"], 4),
        (["name: a, command: [x], after: b", "name: b, command: [x], after: a"], 3),
        (["name: a, command: [x], after: a"], 3),
        (["name: a, command: [x]", "name: a, command: [x]"], 4),
        (["name: a, run: missing.yaml"], 3),
        (["name: a, run: nosuch"], 3),
        (["name: a, run: {source: shop.py, set: {nosuch: 1}}"], 3),
        (["name: a, match: missing.yaml"], 3),
        (["name: a, enrich: missing.yaml"], 3),
        (["name: a, flow: missing.yaml"], 3),
        (["name: a, flow: bad.yaml"], 3),
        (["name: a, check: 'missing.py:check'"], 3),
        (["name: a, check: 'shop.py:nosuch'"], 3),
        (["name: a, check: {records: {min: 1}}"], 3),
        (["name: a, check: {source: shop}"], 3),
        (["name: a, command: echo"], 3),
        (["name: a, command: [x], undo: restore"], 3),
        (["name: a, run: shop.py, undo: delete"], 3),
        (["name: a, command: [x], undo: nonsense"], 3),
        (["name: a, command: [x], pivot: true", "name: b, export: a.csv, undo: restore"], 4),
        (["name: a, export: a.nosuch"], 3),
        (["name: a, export: '-'"], 3),
        (["name: a, export: 'postgresql://me:secret@host/db'"], 3),
        (["name: a, webhook: {url: 'https://x.example/'}"], 3),
        (["name: a, command: [x], run: shop.py"], 3),
        (["name: a"], 3),
        (["name: a b, command: [x]"], 3),
        (["name: a, command: ['{params.nosuch}']"], 3),
        (["name: a, command: ['{nosuch}']"], 3),
        (["name: a, command: ['{steps.b.output}']", "name: b, command: [x]"], 3),
        (["name: a, command: ['{item}']"], 3),
        (["name: a, command: ['{']"], 3),
        (["name: a, command: [x]", "name: b, command: [x], when: steps.c.state"], 4),
        (["name: a, command: [x], when: 'a =='"], 3),
        (["name: a, command: [x], retry: {attempts: 0}"], 3),
        (["name: a, command: [x], timeout: soon"], 3),
        (["name: a, each: {items: [1], step: {command: [x], undo: restore}}"], 3),
        (["name: a, each: {items: [1]}"], 3),
        (["name: a, each: {values: params.nosuch, step: {command: [x]}}"], 3),
        (["name: a, webhook: {name: x, data: {values: '{params.nosuch}'}}"], 3),
    ],
)
def test_a_mistake_is_found_with_its_line(tmp_path: Path, steps: list[str], line: int) -> None:
    assert problem(tmp_path, *steps).line == line


def test_a_cycle_is_named(tmp_path: Path) -> None:
    steps = [f"name: {one}, command: [x], after: {other}" for one, other in ("ab", "bc", "ca")]

    assert problem(tmp_path, *steps).problem.count("→") == 3


def test_python_means_the_same_as_yaml(tmp_path: Path) -> None:
    written = load(
        tmp_path,
        """
        flow: nightly
        params: {region: sofia}
        on_failure: compensate
        steps:
          - {name: shop, run: {source: shop.py, set: {things: 2}}, undo: restore}
          - name: look
            check: {source: shop, records: {min: 1}}
            retry: {attempts: 3, base: 1m}
          - {name: publish, export: '{params.region}.csv', undo: restore, pivot: true}
          - {name: done, command: [echo, done], optional: true, when: steps.shop.output}
        """,
    )
    flow = (
        Flow("nightly", params={"region": "sofia"}, on_failure="compensate")
        .run("shop", {"source": "shop.py", "set": {"things": 2}}, undo="restore")
        .check(
            "look",
            {"source": "shop", "records": {"min": 1}},
            retry={"attempts": 3, "base": "1m"},
        )
        .export("publish", "{params.region}.csv", undo="restore", pivot=True)
        .command("done", ["echo", "done"], optional=True, when="steps.shop.output")
    )

    assert flow.freeze(folder=tmp_path).hash == written.hash


def test_a_flow_is_found_in_a_python_file(tmp_path: Path) -> None:
    text = "from longline import Flow\nnightly = Flow('nightly').command('a', ['echo'])\n"
    path = write(tmp_path, "flows.py", text)

    assert load_flow(str(path)).name == "nightly"
    assert load_flow(f"{path}:nightly").file == f"{path}:nightly"
    with pytest.raises(BadFile):
        load_flow(f"{path}:nosuch")


def test_a_mistake_in_python_names_the_step() -> None:
    with pytest.raises(BadOption) as caught:
        Flow("bad").command("a", ["x"], undo="restore").freeze()

    assert caught.value.option == "flow bad: steps[0].undo"


def test_a_flow_is_found_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, "flows/one.yaml", DIAMOND)
    settings = Settings(flows=(tmp_path / "flows",))

    assert load_flow("diamond", settings).name == "diamond"
    with pytest.raises(BadOption):
        load_flow("nosuch", settings)


def test_the_files_of_steps_are_frozen(tmp_path: Path) -> None:
    text = "flow: one\nsteps: [{name: a, run: job.yaml}]\n"
    write(tmp_path, "job.yaml", "source: shop.py\nset: {things: 1}\n")
    first = load(tmp_path, text)
    write(tmp_path, "job.yaml", "source: shop.py\nset: {things: 2}\n")
    second = load(tmp_path, text)

    assert first.resolved["a"]["spec"]["set"] == {"things": 1}
    assert first.hash != second.hash
    assert FrozenFlow.from_dict(first.as_dict()) == first


def test_a_moved_flow_is_the_same(tmp_path: Path) -> None:
    flows = [load(tmp_path / folder, DIAMOND) for folder in ("one", "two")]

    assert flows[0].hash == flows[1].hash


def test_the_order_of_the_steps_is_drawn(tmp_path: Path) -> None:
    flow = load(tmp_path, DIAMOND)

    text = list(graph_lines(flow, {"a": "complete"}))
    diagram = list(mermaid_lines(flow, {"a": "complete"}))

    assert [line.split()[0] for line in text] == ["a", "b", "c", "d"]
    assert diagram[0] == "graph TD"
    assert {line.strip() for line in diagram if "--" in line} == {
        *("s0 --> s1", "s0 --> s2", "s1 --> s3", "s2 --> s3"),
    }
    assert sum("complete" in line for line in [*text, *diagram]) == 2
