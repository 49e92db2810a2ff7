"""The demo, small: what a newcomer sees first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal


@pytest.mark.real_time
def test_the_demo_collects_everything_and_reports_what_the_site_did(
    longline: Terminal, home: Path
) -> None:
    answer = longline("demo", "--items", "10")  # the seed gives this many one fault

    export = home / "demo" / "templates.jsonl"
    assert answer.code == 0
    assert "10 stored" in answer.out
    assert re.search(r"\b0 429s\b[^.]*\bcut\b", answer.out)
    assert str(export) in answer.out
    assert len(export.read_text().splitlines()) == 10


def test_a_demo_that_serves_prints_a_link_and_no_json(longline: Terminal) -> None:
    answer = longline("demo", "--serve", "--json")

    assert answer.code == 2
    assert answer.out == ""
