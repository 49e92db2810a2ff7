"""Exports by workers, and exports at the end of a run."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click
import pytest

from longline.config.settings import Settings
from longline.core.errors import BadOption, UnknownJob
from longline.storage.queue.tasks import Task
from longline.storage.store import open_store
from tests.cli.terminal import Terminal
from tests.servers import RedisServer


def orders(home: Path) -> list[Task]:
    """Return the tasks that are ready."""
    with open_store(Settings(home=home).database) as store:
        return asyncio.run(store.tasks.ready(time.time()))


@pytest.fixture
def job(longline: Terminal, shop: Path) -> str:
    """A job that has ended."""
    name: str = longline("run", shop, "--json").last["job"]
    return name


@pytest.fixture
def redis(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_REDIS_URL", redis_server.url)


@pytest.mark.usefixtures("redis")
def test_an_export_is_detached_to_a_worker(
    longline: Terminal, home: Path, job: str, tmp_path: Path
) -> None:
    words = ("--columns", "key,title", "--no-schema")
    answer = longline("export", "--job", job, "-o", "a.csv", *words, "--detach", "--json")

    (order,) = orders(home)
    path = str(tmp_path / "a.csv")
    assert answer.last == {"job": job, "output": path, "task": order.name}
    assert order.what == {"output": path, "columns": ["key", "title"], "has_schema": False}
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.usefixtures("redis")
def test_a_detached_export_names_job_and_file(longline: Terminal, job: str, tmp_path: Path) -> None:
    answer = longline("export", "--job", job, "-o", "a.csv", "--detach")

    assert answer.code == 0
    assert all(text in answer.out for text in (job, str(tmp_path / "a.csv"), "worker"))


@pytest.mark.usefixtures("redis")
@pytest.mark.parametrize(
    ("words", "option", "mentioned"),
    [
        (("-o", "a.csv"), "--detach", "--job"),
        (("--job", "JOB", "-o", "-"), "--output", "file"),
        (("--job", "JOB", "-o", "a.unknown"), "--output", "a.unknown"),
        (("--job", "JOB", "-o", "a.csv", "--search", "x"), "--search", "--detach"),
        (("--job", "JOB", "-o", "a.csv", "--redact"), "--redact", "--detach"),
        (("--job", "JOB", "-o", "a.csv", "--incremental", "x"), "--incremental", "--detach"),
        (("--job", "JOB", "-o", "postgresql://me:word@host/base"), "--output", "--secret"),
    ],
)
def test_an_export_that_a_worker_cannot_write_is_refused(
    longline: Terminal,
    home: Path,
    job: str,
    *,
    words: tuple[str, ...],
    option: str,
    mentioned: str,
) -> None:
    given = [job if word == "JOB" else word for word in words]

    answer = longline("export", *given, "--detach")

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == option
    assert mentioned in answer.error.problem
    assert orders(home) == []


@pytest.mark.usefixtures("redis", "job")
def test_a_detached_export_of_an_unknown_job_is_refused(longline: Terminal, home: Path) -> None:
    answer = longline("export", "--job", "nobody", "-o", "a.csv", "--detach")

    assert answer.code == 2
    assert isinstance(answer.error, UnknownJob)
    assert answer.error.job == "nobody"
    assert orders(home) == []


def test_a_detached_export_without_a_cluster_is_refused(
    longline: Terminal, home: Path, job: str
) -> None:
    answer = longline("export", "--job", job, "-o", "a.csv", "--detach")

    assert answer.code == 2
    assert "longline up" in answer.err
    assert orders(home) == []


def test_a_run_writes_its_records_at_its_end(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    answer = longline("run", shop, "--export", "a.jsonl", "--json")

    assert answer.last["output"] == str(tmp_path / "a.jsonl")
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 3


def test_a_run_with_an_export_prints_where_the_records_are(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    answer = longline("run", shop, "--export", "a.jsonl")

    assert str(tmp_path / "a.jsonl") in answer.out


def test_a_run_whose_records_cannot_be_written_reports_it(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").mkdir()

    answer = longline("run", shop, "--export", "a.jsonl", "--json")

    assert answer.code == 2
    assert (answer.last["state"], answer.last["output"]) == ("complete", None)
    assert str(tmp_path / "a.jsonl") in answer.last["unwritten"]


def test_a_run_does_not_begin_if_the_folder_of_its_export_is_missing(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    answer = longline("run", shop, "--export", "missing/a.jsonl", "--json")

    assert (answer.code, answer.out) == (2, "")
    assert not (tmp_path / "missing").exists()
    assert longline("jobs", "--json").last == []


def test_an_export_makes_a_folder_only_on_request(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    longline("run", shop, "--json")

    refused = longline("export", "-o", "missing/a.jsonl")
    assert (refused.code, (tmp_path / "missing").exists()) == (2, False)
    made = longline("export", "-o", "missing/a.jsonl", "--mkdir")

    assert made.code == 0
    assert (tmp_path / "missing" / "a.jsonl").exists()


def test_a_failed_job_without_records_leaves_what_is_there(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text("of yesterday")

    answer = longline("run", shop, "--set", "broken=true", "--export", "a.jsonl", "--json")

    assert (answer.last["state"], answer.last["output"]) == ("failed", None)
    assert "failed" in answer.last["unwritten"]
    assert (tmp_path / "a.jsonl").read_text() == "of yesterday"


def test_a_job_that_has_not_ended_is_not_written_yet(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    answer = longline("run", shop, "--set", "closed=true", "--export", "a.jsonl", "--json")

    assert answer.code == 4
    assert (answer.last["state"], answer.last["output"]) == ("paused", None)
    assert answer.last["unwritten"]
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "kind", "mentioned"),
    [
        (("shop.py", "shop.py", "--export", "a.csv"), click.UsageError, "SOURCE"),
        (("shop.py", "--export", "-"), BadOption, "file"),
        (("shop.py", "--export", "a.unknown"), BadOption, "a.unknown"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_an_export_that_a_run_cannot_write_is_refused_before_it_begins(
    longline: Terminal, words: tuple[str, ...], kind: type[Exception], mentioned: str
) -> None:
    answer = longline("run", *words)

    assert answer.code == 2
    assert isinstance(answer.error, kind)
    assert "--export" in answer.err
    assert mentioned in answer.err
    assert longline("jobs", "--json").last == []


@pytest.mark.usefixtures("redis")
def test_a_detached_run_creates_its_export_task(
    longline: Terminal, home: Path, shop: Path, tmp_path: Path
) -> None:
    said = ("--engine", "celery", "--detach", "--export", "a.csv", "--json")
    job = longline("run", shop, *said).last["job"]
    before = orders(home)

    longline("cancel", job)

    assert before == []
    (order,) = orders(home)
    assert (order.job, order.what) == (job, {"output": str(tmp_path / "a.csv")})
