"""Options of queries that no database could count to, or that say nothing."""

from __future__ import annotations

import pytest

from tests.cli.terminal import Terminal

HUGE = "99999999999999999999"


@pytest.mark.parametrize(
    "words",
    [
        ("records", "list", "--limit", HUGE),
        ("records", "search", "hat", "--limit", HUGE),
        ("jobs", "--limit", HUGE),
        ("export", "x.jsonl", "--limit", HUGE),
        ("records", "list", "--min-score", "nan"),
        ("records", "list", "--order", "--"),
        ("records", "list", "--order", " - "),
    ],
)
def test_what_means_nothing_is_refused_in_a_sentence(
    longline: Terminal, words: tuple[str, ...]
) -> None:
    told = longline(*words)

    assert (told.code, told.out) == (2, "")
    assert words[-2] in told.err
    assert "Traceback" not in told.err
