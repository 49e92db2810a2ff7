"""longline plan, as people read it and as programs do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from longline.cli.commands.run import plan_command
from longline.sandbox.web import PracticeWeb
from tests.cli.served import served


@pytest.fixture(scope="module")
def web() -> Iterator[PracticeWeb]:
    with served(items=30) as web:
        yield web


def arguments(web: PracticeWeb, home: Path, *more: str) -> list[str]:
    chosen = {"site_url": web.site_url, "api_url": web.api_url, "transcripts": "false"}
    words = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    return ["n8n", *words, "--rate", "50", "--home", str(home), *more]


def test_a_plan_has_items_requests_rate_and_duration(web: PracticeWeb, tmp_path: Path) -> None:
    answer = CliRunner().invoke(plan_command, arguments(web, tmp_path))

    assert answer.exit_code == 0, answer.output
    numbers = set(re.findall(r"\d+", answer.output))
    assert {"30", "33", "50", "5"} <= numbers  # items, requests, rate and burst
    assert "19" in numbers  # requests for this plan: robots.txt, 3 to find items, 15 samples


def test_a_plan_can_be_read_by_a_program(web: PracticeWeb, tmp_path: Path) -> None:
    answer = CliRunner().invoke(plan_command, arguments(web, tmp_path, "--limit", "10", "--json"))

    result = json.loads(answer.output)
    assert (result["items"], result["requests"], result["certainty"]) == (10, 13, "known")
    assert (result["discovery_requests"], result["requests_per_item"]) == (3, 1)
    assert result["items_at_least"] is None
    assert (result["domains"][0]["rate"], result["domains"][0]["burst"]) == (50, 5)
