"""longline flow: runs a flow in the foreground, and changes its runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from longline.core.errors import BadOption
from tests.cli.terminal import Terminal

FAIL = [sys.executable, "-c", "raise SystemExit(3)"]
PASS = [sys.executable, "-c", "print('{{\"id\": 7}}')"]


def flow(folder: Path, *steps: dict[str, Any], name: str = "flow.yaml", **top: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({"flow": "x", "steps": steps, **top}))  # JSON is YAML
    return path


def test_a_flow_is_run_with_its_sources(longline: Terminal, shop: Path, tmp_path: Path) -> None:
    path = flow(
        tmp_path,
        {"name": "shop", "run": shop.name},
        {"name": "publish", "export": {"to": "out.csv", "columns": ["title"]}},
    )

    answer = longline("flow", "run", path, "--json")

    found = answer.last
    assert (answer.code, found["state"], found["flow"]) == (0, "complete", "x")
    assert [step["state"] for step in found["steps"]] == ["complete", "complete"]
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 4
    assert longline("flow", "list", "--json").last[0]["run"] == found["run"]


COMPENSATE = {"on_failure": "compensate", "undo_retry": {"attempts": 1}}


@pytest.mark.parametrize(
    ("definition", "end"),
    [
        (({"command": PASS}, {}), (0, "complete")),
        (({"command": FAIL}, {}), (1, "failed")),
        (({"command": FAIL, "optional": True}, {}), (3, "partial")),
        (({"approve": "Yes?"}, {}), (4, "waiting")),
        (({"command": FAIL}, COMPENSATE), (4, "compensated")),
        (({"command": FAIL, "undo": {"command": FAIL}}, COMPENSATE), (1, "needs attention")),
    ],
)
def test_the_exit_code_says_how_it_ended(
    longline: Terminal, tmp_path: Path, definition: Any, end: tuple[int, str]
) -> None:
    step, top = definition
    answer = longline("flow", "run", flow(tmp_path, {"name": "a", **step}, **top), "--json")

    assert (answer.code, answer.last["state"]) == end


def test_the_same_command_continues_an_unfinished_run(longline: Terminal, tmp_path: Path) -> None:
    path = flow(tmp_path, {"name": "a", "approve": "Yes?"}, params={"n": 1})

    first = longline("flow", "run", path, "--json").last["run"]
    second = longline("flow", "run", path, "--json").last["run"]
    other = longline("flow", "run", path, "--param", "n=2", "--json").last["run"]
    fresh = longline("flow", "run", path, "--fresh", "--json").last["run"]

    assert first == second
    assert len({first, other, fresh}) == 3


def test_a_run_is_approved_and_resumed(longline: Terminal, tmp_path: Path) -> None:
    path = flow(tmp_path, {"name": "ok", "approve": "Yes?"}, {"name": "b", "command": PASS})
    run = longline("flow", "run", path, "--json").last["run"]

    approved = longline("flow", "approve", run, "--by", "me", "--comment", "fine", "--json")
    resumed = longline("flow", "resume", run, "--json")
    again = longline("flow", "resume", run)

    assert (approved.code, approved.last["state"]) == (0, "complete")
    steps = {one["step"]: one["output"] for one in resumed.last["steps"]}
    assert (resumed.code, steps["ok"]) == (0, {"by": "me", "comment": "fine"})
    assert steps["b"]["result"] == {"id": 7}
    assert again.code == 2


def test_a_run_is_rejected(longline: Terminal, tmp_path: Path) -> None:
    run = longline("flow", "run", flow(tmp_path, {"name": "ok", "approve": "Yes?"}), "--json").last[
        "run"
    ]

    assert longline("flow", "approve", run, "ok", "--reject").code == 0
    assert longline("flow", "resume", run).code == 1
    assert longline("flow", "approve", run, "ok").code == 2


def test_a_run_is_cancelled(longline: Terminal, tmp_path: Path) -> None:
    run = longline("flow", "run", flow(tmp_path, {"name": "ok", "approve": "Yes?"}), "--json").last[
        "run"
    ]

    assert longline("flow", "cancel", run, "--comment", "no").code == 0
    ended = longline("flow", "resume", run, "--json")
    assert (ended.code, ended.last["state"]) == (1, "failed")
    assert longline("flow", "cancel", run).code == 2


def test_a_detached_run_is_left_to_others(longline: Terminal, tmp_path: Path) -> None:
    path = flow(tmp_path, {"name": "a", "command": PASS})

    detached = longline("flow", "run", path, "--detach", "--json")
    resumed = longline("flow", "resume", detached.last["run"], "--json")

    assert (detached.code, detached.last["state"]) == (0, "running")
    assert resumed.last["state"] == "complete"


def test_a_failed_run_is_retried(longline: Terminal, tmp_path: Path) -> None:
    read = [sys.executable, "-c", "open('ready')"]
    path = flow(tmp_path, {"name": "a", "command": read})
    run = longline("flow", "run", path, "--json").last["run"]
    (tmp_path / "ready").touch()

    assert longline("flow", "retry", run).code == 0
    assert longline("flow", "retry", run).code == 2


def test_a_changed_file_concerns_new_runs_unless_asked(longline: Terminal, tmp_path: Path) -> None:
    first = {"name": "a", "command": PASS}
    run = longline(
        "flow", "run", flow(tmp_path, first, {"name": "b", "command": FAIL}), "--json"
    ).last["run"]
    flow(tmp_path, first, {"name": "b", "command": PASS}, {"name": "c", "command": PASS})

    old = longline("flow", "retry", run)
    new = longline("flow", "retry", run, "--upgrade-from", "b", "--json")

    assert old.code == 1
    assert (new.code, [one["step"] for one in new.last["steps"]]) == (0, ["a", "b", "c"])
    assert [one["attempt"] for one in new.last["steps"]] == [1, 1, 1]


def test_an_upgrade_does_not_skip_a_changed_step(longline: Terminal, tmp_path: Path) -> None:
    run = longline(
        "flow",
        "run",
        flow(tmp_path, {"name": "a", "command": PASS}, {"name": "b", "command": FAIL}),
        "--json",
    ).last["run"]
    flow(tmp_path, {"name": "a", "command": FAIL}, {"name": "b", "command": PASS})

    assert longline("flow", "retry", run, "--upgrade-from", "b").code == 2
    assert longline("flow", "retry", run, "--upgrade-from", "nosuch").code == 2
    assert longline("flow", "retry", run, "--upgrade-from", "a").code == 1


def test_a_complete_run_is_undone_unless_it_passed_its_pivot(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    del shop
    export = {"name": "a", "export": "a.csv", "undo": "restore"}
    runs = [
        longline("flow", "run", flow(tmp_path, *steps), "--json").last["run"]
        for steps in ([export], [export, {"name": "b", "command": PASS, "pivot": True}])
    ]

    refused = longline("flow", "undo", runs[1])
    assert (refused.code, (tmp_path / "a.csv").exists()) == (2, True)


def test_undo_removes_what_was_exported(longline: Terminal, tmp_path: Path) -> None:
    path = flow(tmp_path, {"name": "a", "export": "a.csv", "undo": "restore"})
    run = longline("flow", "run", path, "--json").last["run"]
    existed = (tmp_path / "a.csv").exists()

    undone = longline("flow", "undo", run, "--json")

    assert (undone.code, undone.last["state"]) == (4, "compensated")
    assert (existed, (tmp_path / "a.csv").exists()) == (True, False)


def test_a_flow_and_a_run_are_drawn(longline: Terminal, tmp_path: Path) -> None:
    path = flow(tmp_path, {"name": "a", "command": PASS}, {"name": "b", "command": FAIL})
    run = longline("flow", "run", path, "--json").last["run"]

    text = longline("flow", "graph", path)
    states = longline("flow", "graph", run)
    diagram = longline("flow", "graph", path, "--mermaid")

    assert (text.code, states.code, diagram.code) == (0, 0, 0)
    assert "complete" not in text.out
    assert {"complete", "failed"} <= {word.strip("[]") for word in states.out.split()}
    assert diagram.out.startswith("graph TD")


def test_a_run_is_shown_for_people(longline: Terminal, tmp_path: Path) -> None:
    ended = longline("flow", "run", flow(tmp_path, {"name": "a", "command": PASS}))
    run = longline("flow", "list", "--json").last[0]["run"]

    shown = longline("flow", "show", run)

    assert ended.code == shown.code == 0
    assert run in shown.out
    assert run in longline("flow", "list").out


def test_an_invalid_flow_in_python_is_not_taken_for_a_run(
    longline: Terminal, tmp_path: Path
) -> None:
    text = "from longline.scheduling.flow import Flow\nx = Flow('x').command('a', ['x'], undo=1)\n"
    (tmp_path / "flows.py").write_text(text, "utf-8")

    answer = longline("flow", "graph", "flows.py:x")

    assert (answer.code, type(answer.error)) == (2, BadOption)


@pytest.mark.parametrize(
    "words",
    [
        ("run", "nosuch"),
        ("run", "nosuch.yaml"),
        ("run", "flow.yaml", "--param", "n=1"),
        ("show", "nosuch"),
        ("show", ""),
        ("resume", "nosuch"),
        ("undo", "nosuch"),
        ("approve", "nosuch"),
        ("graph", "nosuch"),
        ("graph", "nosuch.yaml"),
    ],
)
def test_a_wrong_name_is_one_sentence(
    longline: Terminal, tmp_path: Path, words: tuple[str, ...]
) -> None:
    flow(tmp_path, {"name": "a", "command": PASS})

    answer = longline("flow", *words)

    assert answer.code == 2
    assert len(answer.err.strip().splitlines()) == 1
