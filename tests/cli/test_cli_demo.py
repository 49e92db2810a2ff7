"""The demo, small: what a newcomer sees first."""

from __future__ import annotations

import pytest

from cli.terminal import Terminal


@pytest.mark.real_time
def test_the_demo_collects_everything_and_tells_what_the_site_did(longline: Terminal) -> None:
    answer = longline("demo", "--items", "10")  # the seed gives this many one fault

    assert answer.code == 0
    assert "10 discovered = 10 stored" in answer.out
    assert "0 answers of 429; faults: cut once\n" in answer.out
    assert "10 records in " in answer.out
