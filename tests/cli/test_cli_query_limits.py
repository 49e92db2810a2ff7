"""Values of query options that are too large or meaningless."""

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
def test_meaningless_values_are_refused(longline: Terminal, words: tuple[str, ...]) -> None:
    result = longline(*words)

    assert (result.code, result.out) == (2, "")
    assert words[-2] in result.err
    assert "Traceback" not in result.err
