# Pins wording on purpose.
"""What people see of a running job, in words and numbers."""

from __future__ import annotations

import io
import re
from collections import deque
from dataclasses import replace

import pytest
from rich.console import Console

from longline.cli.options import typed_values
from longline.cli.output import duration_text
from longline.cli.progress import (
    JobDisplay,
    eta_text,
    job_panel,
    print_summary,
    progress_line,
    rate_limit_text,
)
from longline.core.model import ItemState, JobState
from longline.engine.progress import PaceStatus, Progress
from longline.engine.report import JobReport

COUNTS = dict.fromkeys(ItemState, 0) | {
    ItemState.STORED: 6,
    ItemState.SKIPPED: 1,
    ItemState.FAILED: 2,
    ItemState.QUEUED: 11,
}
PACE = PaceStatus("shop.test", 40, 2.0, 5, -1.5, 12, 75.0)
PROGRESS = Progress(
    job="shop-1",
    source="shop",
    state=JobState.RUNNING,
    counts=COUNTS,
    statistics={"requests": 1234, "retries": 5, "rate_limited": 1},
    is_discovered=True,
    elapsed=30.0,
    items_per_minute=18.0,
    mean_seconds=1.25,
    eta=75.4,
    pace=(PACE,),
)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (42.4, "42s"),
        (59.6, "1m 00s"),
        (185, "3m 05s"),
        (7800, "2h 10m"),
        (90_000, "1d 01h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words


@pytest.mark.parametrize(
    ("eta", "is_discovered", "words"),
    [
        (None, True, "unknown"),
        (75.4, True, "1m 15s"),
        (75.4, False, "over 1m 15s"),
    ],
)
def test_an_eta_is_a_lower_bound_while_items_are_still_found(
    eta: float | None, words: str, *, is_discovered: bool
) -> None:
    assert eta_text(replace(PROGRESS, eta=eta, is_discovered=is_discovered)) == words


def test_a_line_for_logs_shows_the_progress() -> None:
    assert progress_line(PROGRESS) == (
        "shop: 9/20 items, 6 ok, 2 failed, 75.0%, 18/min, 1234 requests, 1 429s, ETA 1m 15s"
    )


def test_nothing_tried_has_no_success_rate() -> None:
    empty = replace(PROGRESS, counts=dict.fromkeys(ItemState, 0), is_discovered=False, eta=None)

    assert progress_line(empty).startswith("shop: 0/0+ ")
    assert "%" not in progress_line(empty)


def test_the_state_of_a_limit_is_shown() -> None:
    assert rate_limit_text(PACE) == (
        "shop.test  2/s  burst 5  tokens 0.0  waited 1m 15s in 12 waits"
    )
    assert rate_limit_text(replace(PACE, rate=None)) == "shop.test  unlimited"


def test_the_live_display_shows_every_counter() -> None:
    console = Console(width=120, record=True, file=io.StringIO())

    console.print(job_panel(PROGRESS))

    text = console.export_text()
    numbers = re.findall(r"[\d,]+", text)
    assert {"9", "20", "1,234", "5", "429"} <= set(numbers)
    assert all(part in text for part in ("6 stored", "1 skipped", "2 failed"))
    assert rate_limit_text(PACE) in text


def test_plain_lines_come_every_few_seconds_only(capsys: pytest.CaptureFixture[str]) -> None:
    snapshots = [replace(PROGRESS, elapsed=at) for at in (0.0, 1.0, 4.9, 5.1, 6.0)]

    with JobDisplay() as display:
        deque(map(display.update, snapshots), maxlen=0)

    assert capsys.readouterr().err.count("shop: ") == 2


def test_a_quiet_display_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with JobDisplay(is_quiet=True) as display:
        display.say("hello")
        display.update(PROGRESS)

    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("state", "is_interrupted", "code"),
    [
        (JobState.COMPLETE, False, 0),
        (JobState.COMPLETE, True, 0),
        (JobState.FAILED, False, 1),
        (JobState.PARTIAL, False, 3),
        (JobState.PAUSED, False, 4),
        (JobState.PAUSED, True, 130),
        (JobState.RUNNING, True, 130),
        (JobState.CANCELLED, False, 4),
    ],
)
def test_the_exit_code_follows_from_the_state(
    state: JobState, code: int, *, is_interrupted: bool
) -> None:
    report = JobReport(replace(PROGRESS, state=state), 1.0, is_interrupted=is_interrupted)

    assert report.exit_code == code


def test_a_summary_adds_up_and_says_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(JobReport(replace(PROGRESS, state=JobState.PAUSED), 61.0, reason="[/b] stopped"))

    out = capsys.readouterr().out
    assert out.startswith("paused — [/b] stopped  (shop-1, 1m 01s)\n")
    assert "20 discovered = 6 stored + 1 skipped + 2 failed + 11 remaining" in out
    assert out.endswith("resume    longline resume shop-1\n")


def test_values_keep_the_type_they_look_like() -> None:
    pairs = [("a", "5"), ("b", "2.5"), ("c", "true"), ("d", "007"), ("e", ""), ("f", "[1]")]

    assert typed_values(pairs) == {"a": 5, "b": 2.5, "c": True, "d": "007", "e": "", "f": "[1]"}
