"""longline failures and longline retry: what went wrong, and exactly that once more."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.core.errors import UnknownJob
from longline.orchestrator import NothingToRetry
from tests.cli.terminal import Terminal

TROUBLED = """
from pathlib import Path

from longline import Item, Source, layer
from longline.core.errors import UnexpectedShape
from longline.http.errors import TimedOut

class Troubled(Source):
    name = "troubled"

    async def discover(self, visit):
        for key in ("good", "late", "later", "odd"):
            yield Item(key, f"https://troubled.test/{key}")

    @layer()
    async def page(self, visit):
        if Path("mended").exists():
            return {"n": visit.item.key}
        if visit.item.key.startswith("late"):
            raise TimedOut(visit.item.url, 3.0)
        if visit.item.key == "odd":
            raise UnexpectedShape(visit.item.url, "no price")
        return {"n": visit.item.key}
"""


@pytest.fixture
def troubled(tmp_path: Path, longline: Terminal) -> str:
    """Return a job in which three of four items failed."""
    path = tmp_path / "troubled.py"
    path.write_text(TROUBLED)
    job: str = longline("run", path, "--json").last["job"]
    return job


def test_failures_are_listed_with_their_kinds(longline: Terminal, troubled: str) -> None:
    result = longline("failures", troubled, "--json").last

    assert [(one["key"], one["kind"]) for one in result["items"]] == [
        ("late", "timeout"),
        ("later", "timeout"),
        ("odd", "invalid"),
    ]
    assert result["kinds"]["timeout"]["failed"] == 2
    assert result["items"][2]["attempts"][0]["step"] == "quarantine"


def test_failures_of_one_kind_are_shown_to_people(longline: Terminal, troubled: str) -> None:
    answer = longline("failures", troubled, "--kind", "invalid", "--attempts")

    assert "no price" in answer.out
    assert "later" not in answer.out


def test_retry_queues_exactly_those_of_the_kind(
    longline: Terminal, troubled: str, tmp_path: Path
) -> None:
    (tmp_path / "mended").touch()

    answer = longline("retry", troubled, "--kind", "timeout", "--json")

    result = answer.last
    assert (result["stored"], result["quarantined"], result["failed"]) == (3, 1, 0)
    assert (answer.code, result["state"]) == (3, "partial")


def test_retry_of_a_kind_that_never_happened_is_refused(longline: Terminal, troubled: str) -> None:
    answer = longline("retry", troubled, "--kind", "blocked")

    assert answer.code == 2
    assert isinstance(answer.error, NothingToRetry)
    assert (answer.error.job, answer.error.kind) == (troubled, "blocked")
    assert longline("jobs", troubled, "--json").last["state"] == "partial"


def test_a_job_without_failures_lists_none(longline: Terminal, shop: Path) -> None:
    job = longline("run", shop, "--json").last["job"]

    assert len(longline("failures", job).out.splitlines()) == 1
    assert longline("failures", job, "--json").last == {"job": job, "kinds": {}, "items": []}


@pytest.mark.parametrize("command", ["failures", "retry"])
def test_an_unknown_job_is_refused(longline: Terminal, command: str) -> None:
    answer = longline(command, "nowhere")

    assert (answer.code, len(answer.err.splitlines())) == (2, 1)
    assert isinstance(answer.error, UnknownJob)
    assert answer.error.job == "nowhere"
