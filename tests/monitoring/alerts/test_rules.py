"""The rules of a settings file: what they change, and the sentence about a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.config.documents import parse_document
from longline.core.errors import BadFile
from longline.monitoring.alerts.configuration import alert_settings_in
from longline.monitoring.alerts.rules import RULE_KINDS, Rule, default_rules, make_rules
from longline.monitoring.alerts.run_checks import is_about_runs
from longline.monitoring.alerts.state_checks import is_about_state

FILE = Path("longline.yaml")


def rules_of(text: str) -> dict[str, Rule]:
    settings = alert_settings_in(parse_document(text.encode(), FILE))
    return {one.name: one for one in make_rules(settings.rules)}


def test_each_kind_has_a_default_rule_and_a_check() -> None:
    rules = {one.name: one for one in default_rules()}

    assert rules.keys() == RULE_KINDS.keys()
    assert all(one.is_enabled for one in rules.values())
    assert [
        one.name for one in rules.values() if not (is_about_runs(one) or is_about_state(one))
    ] == []


def test_a_file_changes_what_it_states_and_nothing_else() -> None:
    rules = rules_of(
        """
alerts:
  rules:
    few-records: {min: 100, for: 10m, tolerance: 40%}
    long-run: {max: 2h, learned: false}
    disk-low: {min: 10%}
    http-errors: {statuses: [403, 429], max: null}
    events-late: {kind: event-lag, max: 1h, severity: critical, only: webhook/*}
"""
    )
    few, long_run = rules["few-records"], rules["long-run"]

    assert (few.min, few.for_seconds, few.tolerance.share) == (100, 600, 0.4)
    assert (few.severity, few.is_learned) == ("critical", True)
    assert (long_run.max, long_run.is_learned) == (7200, False)
    assert rules["disk-low"].min == 0.1
    assert (rules["http-errors"].statuses, rules["http-errors"].max) == ((403, 429), None)
    assert rules["events-late"].applies_to("webhook/ops")
    assert not rules["events-late"].applies_to("stream")
    assert rules["event-lag"] == next(one for one in default_rules() if one.kind == "event-lag")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("few-record: {min: 1}", 4),
        ("few-records: {minimum: 1}", 4),
        ("few-records: {max: 1}", 4),
        ("few-records: {min: many}", 4),
        ("few-records: {severity: bad}", 4),
        ("few-records: {kind: ban}", 4),
        ("mine: {kind: few-record}", 4),
        ("disk-low: {min: 150%}", 4),
        ("long-run: {max: later}", 4),
        ("ban: {for: soon}", 4),
        ("http-errors: {statuses: [42]}", 4),
        ("'a b': {kind: ban}", 3),
        ("ban: {}\n    few-records: {min: -1}", 5),
    ],
)
def test_a_mistake_is_reported_with_its_line(text: str, line: int) -> None:
    with pytest.raises(BadFile) as error:
        rules_of(f"alerts:\n  group_by: rule\n  rules:\n    {text}\n")

    assert error.value.line == line
    assert "\n" not in str(error.value)
