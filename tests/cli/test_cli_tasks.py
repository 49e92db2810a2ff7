"""Tasks of a job: shown while they wait or run, and dropped on request."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import Settings
from longline.core.errors import BadOption, UnknownJob
from longline.engine.owner import this_run
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import open_store
from tests.cli.terminal import Terminal
from tests.servers import RedisServer


@pytest.fixture
def job(
    longline: Terminal, shop: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A job that waits for a worker, and whose records are to be written to a.csv in the end."""
    monkeypatch.setenv("LONGLINE_REDIS_URL", redis_server.url)
    said = ("--engine", "celery", "--detach", "--export", "a.csv", "--json")
    name: str = longline("run", shop, *said).last["job"]
    return name


def leave(longline: Terminal, job: str, output: str) -> None:
    """Detach another export, which a worker may write immediately."""
    longline("export", "--job", job, "-o", output, "--detach")


def take(home: Path, output: Path, owner: str) -> None:
    """Lease the task to export a file."""
    with open_store(Settings(home=home).database) as store:
        now = time.time()
        ready = asyncio.run(store.tasks.ready(now))
        (order,) = [one for one in ready if one.what["output"] == str(output)]
        asyncio.run(store.tasks.claim(order, owner, now, now + 20))


def orders(longline: Terminal, job: str) -> dict[str, dict[str, Any]]:
    """Return the tasks of a job by their output, None for other kinds than exports."""
    return {one["output"]: one for one in longline("jobs", job, "--json").last["tasks"]}


def left(longline: Terminal, job: str) -> list[str]:
    """Return the outputs of the remaining export tasks."""
    return list(orders(longline, job))


def shown(longline: Terminal, job: str, output: Path) -> str:
    """Return the line about the task to export a file."""
    lines = longline("jobs", job).out.splitlines()
    return next(line for line in reversed(lines) if str(output) in line)


def test_a_job_shows_what_its_tasks_wait_for(longline: Terminal, job: str, tmp_path: Path) -> None:
    leave(longline, job, "b.csv")

    waits_for = {Path(one).name: it["waits_for"] for one, it in orders(longline, job).items()}

    assert "end" in waits_for["a.csv"]
    assert "worker" in waits_for["b.csv"]
    assert waits_for["a.csv"] in shown(longline, job, tmp_path / "a.csv")
    assert waits_for["b.csv"] in shown(longline, job, tmp_path / "b.csv")


def test_pending_tasks_are_in_the_json(longline: Terminal, job: str, tmp_path: Path) -> None:
    (order,) = longline("jobs", job, "--json").last["tasks"]

    assert order.pop("task").startswith(f"{job}/export/")
    assert order.pop("placed_at")[:4] == f"{time.gmtime().tm_year}"
    assert "end" in order.pop("waits_for")
    assert order == {"kind": "export", "output": str(tmp_path / "a.csv"), "held_by": None}


def test_a_job_shows_the_owner_of_an_export(
    longline: Terminal, home: Path, job: str, tmp_path: Path
) -> None:
    leave(longline, job, "b.csv")
    take(home, tmp_path / "b.csv", "far~1234:77:5.00:abcdef:66:4.00")

    order = orders(longline, job)[str(tmp_path / "b.csv")]
    assert order["held_by"].startswith("far~1234:77:")
    assert order["waits_for"] is None
    line = shown(longline, job, tmp_path / "b.csv")
    assert {"77", "far"} <= set(re.findall(r"\w+", line))


def test_a_dead_process_does_not_hold_an_export(
    longline: Terminal, home: Path, job: str, tmp_path: Path
) -> None:
    leave(longline, job, "b.csv")
    host, _, *rest = this_run().split(":")
    take(home, tmp_path / "b.csv", ":".join([host, str(2**22 + 1), *rest]))  # past any pid

    order = orders(longline, job)[str(tmp_path / "b.csv")]
    assert order["held_by"] is None
    assert "worker" in order["waits_for"]
    assert order["waits_for"] in shown(longline, job, tmp_path / "b.csv")


def test_a_job_shows_the_pending_call_of_finished(longline: Terminal, home: Path, job: str) -> None:
    with open_store(Settings(home=home).database) as store:
        asyncio.run(store.tasks.place(Task(job, TaskKind.FINISHED, time.time())))

    found = longline("jobs", job, "--json").last["tasks"]
    lines = longline("jobs", job).out.splitlines()

    assert sorted(one["kind"] for one in found) == ["export", TaskKind.FINISHED.value]
    assert [one["output"] for one in found if one["kind"] != "export"] == [None]
    assert any("worker" in line and "a.csv" not in line for line in lines[-2:])


def test_a_job_without_tasks_shows_none(longline: Terminal, shop: Path) -> None:
    job = longline("run", shop, "--json").last["job"]

    result = longline("jobs", job, "--json").last
    assert result["tasks"] == []
    assert result["events"][-1]["type"] in longline("jobs", job).out.splitlines()[-1]


def test_all_pending_exports_of_a_job_are_dropped(
    longline: Terminal, job: str, tmp_path: Path
) -> None:
    leave(longline, job, "b.csv")

    answer = longline("export", "--job", job, "--drop", "--json")

    places = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    assert answer.last == {"job": job, "dropped": places, "under_way": []}
    assert left(longline, job) == []


def test_one_of_the_exports_is_dropped(longline: Terminal, job: str, tmp_path: Path) -> None:
    leave(longline, job, "b.csv")

    answer = longline("export", "--job", job, "-o", "a.csv", "--drop")

    assert (answer.code, answer.out.count("\n")) == (0, 1)
    assert job in answer.out
    assert str(tmp_path / "a.csv") in answer.out
    assert left(longline, job) == [str(tmp_path / "b.csv")]
    assert "export.dropped" in longline("jobs", job).out


def test_an_export_in_progress_is_not_dropped(
    longline: Terminal, home: Path, job: str, tmp_path: Path
) -> None:
    leave(longline, job, "b.csv")
    take(home, tmp_path / "b.csv", "far~1234:77:5.00:abcdef:66:4.00")

    refused = longline("export", "--job", job, "-o", "b.csv", "--drop")
    others = longline("export", "--job", job, "--drop", "--json")

    assert refused.code == 2
    assert isinstance(refused.error, BadOption)
    assert refused.error.option == "--drop"
    assert {"77", "far"} <= set(re.findall(r"\w+", refused.error.problem))
    assert str(tmp_path / "b.csv") in refused.error.problem
    assert others.last["under_way"] == left(longline, job) == [str(tmp_path / "b.csv")]


@pytest.mark.parametrize(
    ("words", "option", "named"),
    [
        (("--drop",), "--drop", "--job"),
        (("--job", "JOB", "--drop", "-o", "b.csv"), "--drop", "b.csv"),
        (("--job", "JOB", "--drop", "--detach"), "--detach", "--drop"),
        (("--job", "JOB", "--drop", "--format", "csv"), "--format", "--drop"),
        (("--job", "JOB", "--drop", "--search", "x"), "--search", "--drop"),
    ],
)
def test_invalid_drops_are_refused(
    longline: Terminal, job: str, words: tuple[str, ...], option: str, named: str
) -> None:
    answer = longline("export", *(job if word == "JOB" else word for word in words))

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == option
    assert named in answer.error.problem
    assert [Path(one).name for one in left(longline, job)] == ["a.csv"]


def test_exports_of_an_unknown_job_are_not_dropped(longline: Terminal, job: str) -> None:
    answer = longline("export", "--job", "nobody", "--drop")

    assert answer.code == 2
    assert isinstance(answer.error, UnknownJob)
    assert answer.error.job == "nobody"
    assert [Path(one).name for one in left(longline, job)] == ["a.csv"]


def test_a_dropped_export_can_be_detached_again(
    longline: Terminal, job: str, tmp_path: Path
) -> None:
    longline("export", "--job", job, "--drop")

    leave(longline, job, "a.csv")

    assert left(longline, job) == [str(tmp_path / "a.csv")]
