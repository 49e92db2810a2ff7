"""longline logs: what is shown of which job or source, and how it is followed."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from longline.storage.monitoring.logs import LogLine
from longline.storage.store import open_store
from tests.cli.terminal import Terminal

WARNING, ERROR = logging.WARNING, logging.ERROR
NOISY = """
import logging
from longline import Item, Source, layer

LOG = logging.getLogger("longline.noisy")


class Noisy(Source):
    name = "noisy"

    async def discover(self, visit):
        LOG.warning("discovering")
        yield Item("7", "https://a.test/7")

    @layer()
    async def page(self, visit):
        LOG.error("bad page", extra={"price": None, "status": 503}, exc_info=ValueError("no price"))
        return {"title": "seven"}
"""


@pytest.fixture
def noisy(tmp_path: Path) -> Path:
    path = tmp_path / "noisy.py"
    path.write_text(NOISY)
    return path


@pytest.fixture
def job(longline: Terminal, noisy: Path) -> str:
    """A job that logged a warning and an error; its id."""
    answer = longline("run", noisy, "--json")
    assert answer.code == 0, answer.err
    return str(answer.last["job"])


def add(home: Path, *lines: LogLine) -> None:
    home.mkdir(exist_ok=True)
    with open_store(f"sqlite:///{home / 'longline.sqlite'}") as store:
        store.logs.add_soon(lines, max_per_job=None)


def line(message: str, age: float = 0.0, **more: Any) -> LogLine:
    return LogLine(time.time() - age, WARNING, "longline.test", message, **more)


def test_a_run_stores_its_warnings_and_errors(longline: Terminal, job: str) -> None:
    first, second = longline("logs", job, "--json").last

    assert (first["level"], first["message"], first["job"]) == ("warning", "discovering", job)
    assert (second["source"], second["domain"], second["item"]) == ("noisy", "a.test", "7")
    assert second["fields"] == {"status": 503}
    assert second["exception"].endswith("ValueError: no price")


@pytest.mark.parametrize("target", [[], ["noisy"], ["{job}"], ["{prefix}"]])
def test_lines_are_shown_by_job_or_source(longline: Terminal, job: str, target: list[str]) -> None:
    words = [one.format(job=job, prefix=job[:-1]) for one in target]

    shown = longline("logs", *words).out.splitlines()

    assert "WARNING discovering" in shown[0]
    assert f"job={job} source=noisy domain=a.test item=7 status=503" in shown[1]
    assert shown[-1] == "  ValueError: no price"


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (["--level", "error"], ["bad page"]),
        (["--grep", "DISCOVER"], ["discovering"]),
        (["--grep", "no price"], ["bad page"]),
        (["--domain", "a.test"], ["bad page"]),
        (["--item", "7"], ["bad page"]),
        (["--limit", "1"], ["bad page"]),
        (["--until", "1h"], ["old"]),
        (["--since", "30h", "--until", "1h"], ["old"]),
        (["--since", "1h"], ["discovering", "bad page"]),
    ],
)
def test_lines_are_chosen(
    longline: Terminal, home: Path, words: list[str], messages: list[str]
) -> None:
    add(home, line("old", age=86400.0))
    if "--limit" in words:
        words = ["noisy", *words]

    found = longline("logs", *words, "--json").last

    assert [one["message"] for one in found] == messages


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    "words",
    [
        ["nosy"],
        [""],
        ["--level", "info"],
        ["--since", "yesterday"],
        ["--limit", "0"],
        ["-f", "--until", "1h"],
    ],
)
def test_bad_input_is_one_sentence(longline: Terminal, words: list[str]) -> None:
    answer = longline("logs", *words)

    assert answer.code == 2
    assert answer.out == ""
    assert "Traceback" not in answer.err


def test_a_prefix_of_several_jobs_is_refused(longline: Terminal, job: str, noisy: Path) -> None:
    longline("run", noisy, "--fresh", "--json")

    assert longline("logs", job[:3]).code == 2


def test_a_job_without_lines_says_so(longline: Terminal, shop: Path) -> None:
    job = longline("run", shop, "--json").last["job"]

    answer = longline("logs", job)

    assert (answer.code, longline("logs", job, "--json").last) == (0, [])
    assert f"longline failures {job}" in answer.out


async def test_new_lines_are_followed_without_gaps(home: Path) -> None:
    add(home, line("before"))
    command = [sys.executable, "-m", "longline", "logs", "-f", "--json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    seen = [await process.stdout.readline()]

    for number in range(30):
        add(home, line(f"new {number}"))
    seen += [await process.stdout.readline() for _ in range(30)]
    process.terminate()
    await process.wait()

    messages = [orjson.loads(one)["message"] for one in seen]
    assert messages == ["before", *(f"new {number}" for number in range(30))]
