"""longline report and digest: formats, files, periods and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal

BEGINNINGS = {
    "text": "Report on",
    "markdown": "# Report on",
    "html": "<!doctype html>",
    "json": "{",
}
STATES = ("queued", "leased", "stored", "unchanged", "skipped", "failed", "quarantined")


@pytest.fixture
def collected(longline: Terminal, shop: Path) -> str:
    """A job of three things, one of which failed; its id."""
    job = longline("run", shop, "--set", "bad=1", "--json").last["job"]
    assert isinstance(job, str)
    return job


@pytest.mark.parametrize("wanted", BEGINNINGS)
def test_a_report_is_printed_in_a_format(longline: Terminal, collected: str, wanted: str) -> None:
    answer = longline("report", "--format", wanted)

    assert answer.code == 3  # one item failed
    assert answer.out.startswith(BEGINNINGS[wanted])
    assert collected in answer.out


def test_the_counts_of_a_report_are_those_of_the_job(longline: Terminal, collected: str) -> None:
    (job,) = longline("jobs", "--json").last

    report = longline("report", collected, "--json").last

    assert {one: report["statistics"][one] for one in STATES} == {one: job[one] for one in STATES}
    assert report["statistics"]["discovered"] == job["discovered"] == 3
    assert sum(job[one] for one in STATES) == job["discovered"]
    assert (report["created_at"], report["reason"]) == (job["created_at"], job["reason"])


@pytest.mark.parametrize("name", ["r.html", "r.md", "r.json", "r.txt"])
def test_the_suffix_of_the_file_selects_the_format(
    longline: Terminal, collected: str, tmp_path: Path, name: str
) -> None:
    longline("report", collected, "-o", name)
    longline("digest", "-o", f"d{name}")

    written = [(tmp_path / one).read_text() for one in (name, f"d{name}")]
    assert all(written)
    assert (written[0][0] == "{") == (name == "r.json")


def test_a_digest_has_what_ran_and_what_needs_a_person(longline: Terminal, collected: str) -> None:
    digest = longline("digest", "--json").last

    assert (digest["totals"]["runs"], digest["totals"]["items"]) == (1, 3)
    assert digest["needs"][0]["kind"] == "partial"
    assert collected in digest["needs"][0]["action"]


def test_a_digest_of_another_day_is_empty(longline: Terminal, collected: str) -> None:
    assert collected
    period = ("--since", "2026-01-01", "--until", "2026-01-02", "--timezone", "Asia/Kolkata")

    digest = longline("digest", *period, "--json").last
    shown = longline("digest", *period).out

    assert digest["period"] == {
        "start": "2025-12-31T18:30:00+00:00",
        "end": "2026-01-01T18:30:00+00:00",
    }
    assert (digest["days"], digest["totals"]["runs"], digest["sources"]) == (None, 0, [])
    assert "No run ended in this period" in shown


def test_an_empty_home_has_a_digest(longline: Terminal) -> None:
    answer = longline("digest")

    assert (answer.code, answer.err) == (0, "")
    assert "Nothing ran" in answer.out


@pytest.mark.parametrize(
    "words",
    [
        ["digest", "--days", "0"],
        ["digest", "--days", "2", "--since", "3d"],
        ["digest", "--since", "yesterday"],
        ["digest", "--since", "1d", "--until", "2d"],
        ["digest", "--timezone", "Mars/Base"],
        ["digest", "--format", "pdf"],
        ["digest", "-o", "digest.pdf"],
        ["report", "--format", "pdf"],
        ["report"],
    ],
)
def test_wrong_options_are_refused(longline: Terminal, tmp_path: Path, words: list[str]) -> None:
    answer = longline(*words)

    assert answer.code == 2
    assert answer.err.strip()
    assert not (tmp_path / "digest.pdf").exists()


def test_invalid_reports_are_found_by_validation(longline: Terminal, tmp_path: Path) -> None:
    text = "concurrency: 2\nreports:\n  daily: {to: [mail:nobody]}\n"
    (tmp_path / "longline.yaml").write_text(text)

    answer = longline("config", "validate", "--json")

    (problem,) = json.loads(answer.out)["problems"]
    assert answer.code == 2
    assert problem["line"] == 3
