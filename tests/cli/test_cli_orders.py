"""Orders of a job: shown while they wait or somebody is at them, and taken back when unwanted."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from cli.terminal import Terminal
from longline.config.settings import Settings
from longline.jobs.owner import this_run
from longline.stores.orders import Order, OrderClaim, OrderKind
from longline.stores.store import open_store
from servers import RedisServer


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
    """Leave one more export to a worker, who may write it at once."""
    longline("export", "--job", job, "-o", output, "--detach")


def take(home: Path, output: Path, owner: str) -> None:
    """Hold the order to write a file."""
    with open_store(Settings(home=home).database) as store:
        now = time.time()
        ready = asyncio.run(store.orders.ready(now))
        (order,) = [one for one in ready if one.what["output"] == str(output)]
        asyncio.run(store.orders.take(OrderClaim(order, owner, now, now + 20)))


def left(longline: Terminal, job: str) -> list[str]:
    """Return where exports of a job that were not dropped go."""
    return [one["output"] for one in longline("jobs", job, "--json").last["orders"]]


def test_a_job_shows_what_waits_for_its_end_and_what_for_a_worker(
    longline: Terminal, job: str, tmp_path: Path
) -> None:
    leave(longline, job, "b.csv")

    shown = longline("jobs", job).out

    assert f"export to {tmp_path / 'a.csv'}: waits for the end of the job\n" in shown
    assert f"export to {tmp_path / 'b.csv'}: waits for a worker\n" in shown


def test_a_program_reads_what_waits(longline: Terminal, job: str, tmp_path: Path) -> None:
    (order,) = longline("jobs", job, "--json").last["orders"]

    assert order.pop("order").startswith(f"{job}/export/")
    assert order.pop("placed_at")[:4] == f"{time.gmtime().tm_year}"
    assert order == {
        "kind": "export",
        "output": str(tmp_path / "a.csv"),
        "held_by": None,
        "waits_for": "the end of the job",
    }


def test_a_job_shows_who_is_at_an_export(
    longline: Terminal, home: Path, job: str, tmp_path: Path
) -> None:
    leave(longline, job, "b.csv")
    take(home, tmp_path / "b.csv", "far~1234:77:5.00:abcdef:66:4.00")

    assert (
        f"export to {tmp_path / 'b.csv'}: process 77 on far is at it" in longline("jobs", job).out
    )


def test_whoever_died_over_an_export_does_not_hold_it(
    longline: Terminal, home: Path, job: str, tmp_path: Path
) -> None:
    leave(longline, job, "b.csv")
    host, _, *rest = this_run().split(":")
    take(home, tmp_path / "b.csv", ":".join([host, str(2**22 + 1), *rest]))  # past any pid

    assert f"export to {tmp_path / 'b.csv'}: waits for a worker" in longline("jobs", job).out


def test_a_job_shows_that_its_source_is_still_to_be_told(
    longline: Terminal, home: Path, job: str
) -> None:
    with open_store(Settings(home=home).database) as store:
        asyncio.run(store.orders.place(Order(job, OrderKind.FINISHED, time.time())))

    shown = longline("jobs", job).out

    assert "tell the source that the job is complete: waits for a worker" in shown


def test_a_job_without_orders_shows_none(longline: Terminal, shop: Path) -> None:
    job = longline("run", shop, "--json").last["job"]

    assert longline("jobs", job, "--json").last["orders"] == []
    assert "to be done" not in longline("jobs", job).out


def test_all_exports_of_a_job_that_wait_are_dropped(
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

    assert answer.out == f"the records of {job} will not be written to {tmp_path / 'a.csv'}\n"
    assert left(longline, job) == [str(tmp_path / "b.csv")]
    assert "export.dropped" in longline("jobs", job).out


def test_an_export_that_is_being_written_comes_to_its_end(
    longline: Terminal, home: Path, job: str, tmp_path: Path
) -> None:
    leave(longline, job, "b.csv")
    take(home, tmp_path / "b.csv", "far~1234:77:5.00:abcdef:66:4.00")

    refused = longline("export", "--job", job, "-o", "b.csv", "--drop")
    others = longline("export", "--job", job, "--drop", "--json")

    assert refused.code == 2
    assert "process 77 on far is writing the export" in refused.err
    assert others.last["under_way"] == left(longline, job) == [str(tmp_path / "b.csv")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--drop",), "say --job"),
        (("--job", "nobody", "--drop"), "there is no job 'nobody'"),
        (("--job", "JOB", "--drop", "-o", "b.csv"), "b.csv waits; `longline jobs"),
        (("--job", "JOB", "--drop", "--detach"), "--detach: that does not go with --drop"),
        (("--job", "JOB", "--drop", "--format", "csv"), "--format: that does not go with --drop"),
        (("--job", "JOB", "--drop", "--search", "x"), "--search: that does not go with --drop"),
    ],
)
def test_what_cannot_be_dropped_is_told(
    longline: Terminal, job: str, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    answer = longline("export", *(job if word == "JOB" else word for word in words))

    assert answer.code == 2
    assert said in answer.err
    assert left(longline, job) == [str(tmp_path / "a.csv")]


def test_what_was_dropped_can_be_left_to_a_worker_again(
    longline: Terminal, job: str, tmp_path: Path
) -> None:
    longline("export", "--job", job, "--drop")

    leave(longline, job, "a.csv")

    assert left(longline, job) == [str(tmp_path / "a.csv")]
