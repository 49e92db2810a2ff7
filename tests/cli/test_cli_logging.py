"""`-v`, `--log-file` and `--log-format`: what a run logs, and where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.sandbox.web import PracticeWeb
from tests.cli.served import served
from tests.cli.terminal import Terminal


@pytest.fixture(scope="module")
def web() -> Iterator[PracticeWeb]:
    with served(items=3) as web:
        yield web


def words(web: PracticeWeb) -> list[str]:
    chosen = {"site_url": web.site_url, "api_url": web.api_url, "transcripts": "false"}
    pairs = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    return ["run", "n8n", *pairs, "--rate", "unlimited", "--json", "--fresh"]


def test_a_run_logs_nothing_by_default(longline: Terminal, web: PracticeWeb) -> None:
    answer = longline(*words(web))

    assert (answer.code, answer.err) == (0, "")


@pytest.mark.parametrize("place", ["before", "after"])
def test_verbose_shows_each_request(longline: Terminal, web: PracticeWeb, place: str) -> None:
    given = ["-v", "--log-format", "json"]

    answer = longline(*given, *words(web)) if place == "before" else longline(*words(web), *given)

    entries = [json.loads(line) for line in answer.err.splitlines()]
    requests = [one for one in entries if "status" in one and "bytes" in one]
    of_items = [one for one in requests if "item" in one]
    assert len(requests) >= answer.last["requests"]
    assert {"domain", "seconds", "wait", "cache", "source"} <= set(of_items[0])
    assert {one["job"] for one in of_items} == {answer.last["job"]}
    assert len({one["item"] for one in of_items}) == 3


def test_twice_verbose_shows_leases_waits_and_cache(longline: Terminal, web: PracticeWeb) -> None:
    given = ["-vv", "--log-format", "json", "--cache", "--rate", "50", "--burst", "1"]

    answer = longline(*words(web), *given)

    entries = [json.loads(line) for line in answer.err.splitlines()]
    loggers = {one["logger"] for one in entries if one["level"] == "debug"}
    assert {
        "longline.engine.worker",
        "longline.limits.limiter",
        "longline.http.middleware.cache",
    } <= loggers


def test_a_log_file_has_the_requests_and_stderr_is_quiet(
    longline: Terminal, web: PracticeWeb, tmp_path: Path
) -> None:
    answer = longline(*words(web), "--log-file", tmp_path / "run.log")

    text = (tmp_path / "run.log").read_text()
    assert answer.err == ""
    assert text.count(" INFO GET ") >= answer.last["requests"]


def test_a_log_file_that_cannot_be_written_is_a_usage_error(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    answer = longline("run", shop, "--log-file", tmp_path / "none" / "run.log")

    assert answer.code == 2
    assert longline("jobs", "--json").last == []
