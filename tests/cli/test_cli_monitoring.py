"""longline metrics and health: texts, JSON and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from longline.services.doctor.findings import CheckContext, ok, problem, warning
from tests.cli.terminal import Terminal


def test_metrics_are_printed_as_prometheus_reads_them(longline: Terminal, shop: Path) -> None:
    longline("run", shop, "--set", "bad=1")

    answer = longline("metrics")

    found = {
        (one.name, one.labels.get("state")): one.value
        for family in text_string_to_metric_families(answer.out)
        for one in family.samples
    }
    assert answer.code == 0
    assert found["longline_items_total", "stored"] == 2
    assert (
        found["longline_items_total", "quarantined"] + found["longline_items_total", "failed"] == 1
    )
    assert found["longline_runs_total", "partial"] == 1
    assert found["longline_records", None] == 2


def test_metrics_are_printed_as_json(longline: Terminal) -> None:
    answer = longline("metrics", "--json")

    found = {one["name"]: one for one in answer.last}
    assert answer.code == 0
    assert found["longline_events"]["type"] == "counter"
    (sample,) = found["longline_events"]["samples"]
    assert sample == {"name": "longline_events_total", "labels": {}, "value": 0.0}


def test_a_healthy_home_exits_with_zero(longline: Terminal, shop: Path) -> None:
    longline("run", shop)

    answer = longline("health", "--json")

    assert answer.code == 0
    assert answer.last["state"] == "ok"
    assert {one["state"] for one in answer.last["checks"]} == {"ok"}


@pytest.mark.parametrize(
    ("finding", "code", "state"), [(warning, 3, "degraded"), (problem, 1, "failed")]
)
def test_the_exit_code_says_how_bad_it_is(
    longline: Terminal, monkeypatch: pytest.MonkeyPatch, finding: object, code: int, state: str
) -> None:
    def check(_context: CheckContext) -> list[object]:
        assert callable(finding)
        return [ok("this", "works"), finding("that", "does not work", "repair it")]

    monkeypatch.setattr("longline.services.health.all_checks", lambda: {"that": check})

    answer = longline("health", "--json")
    text = longline("health").out

    assert (answer.code, answer.last["state"]) == (code, state)
    assert answer.last["checks"][-1] == {
        "check": "that",
        "state": state,
        "sentence": "does not work",
        "remedy": "repair it",
    }
    assert "repair it" in text


def test_a_home_that_cannot_be_written_is_reported(longline: Terminal, home: Path) -> None:
    home.write_text("a file")

    answer = longline("health", "--json")

    assert (answer.code, answer.last["state"]) == (1, "failed")


def test_an_open_address_without_a_token_is_refused(
    longline: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGLINE_MONITORING_ADDRESS", "0.0.0.0:9464")

    answer = longline("serve", "--no-web", "--once")

    assert answer.code == 2
    assert "monitoring_token" in answer.err


def test_a_token_in_the_settings_is_refused_and_not_repeated(
    longline: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGLINE_MONITORING_TOKEN", "hunter2-s3cret")

    answer = longline("config", "show")

    assert answer.code == 2
    assert "hunter2" not in answer.err + answer.out
