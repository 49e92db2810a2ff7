"""The tables of docs/alerts.md: rules as the code has them, and monitors with real tests."""

from __future__ import annotations

import re
from pathlib import Path

from longline.monitoring.alerts.rules import RULE_KINDS, RuleKind
from tests.monitoring.alerts.simulated_week import TROUBLES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "alerts.md").read_text()
TESTS = Path(__file__).parent


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def limits_of(kind: RuleKind) -> str:
    parts = []
    for name, value in (("min", kind.min), ("max", kind.max)):
        if value is not None:
            shown = f"{value:.0%}" if kind.unit == "share" else f"{value:g}"
            shown = f"{value / 60:g}m" if kind.unit == "seconds" else shown
            parts.append(f"`{name}: {shown}`")
    parts += [f"`for: {kind.wait / 60:g}m`"] if kind.wait else []
    parts += ["learned"] if kind.tolerance is not None else []
    optional = sorted(kind.options - {"learned", "tolerance"})
    more = [f"`{one}`" for one in optional if getattr(kind, one, None) is None]
    parts += [f"{', '.join(more)} may be set"] if more else []
    return f"{kind.limits}: {', '.join(parts)}" if kind.limits else ", ".join(parts)


def test_the_table_of_rules_equals_the_code() -> None:
    lines = section("Rules").partition("\nThe key `rules`")[0].splitlines()
    rows = [one for one in lines if one.startswith("| `")]

    assert rows == [
        f"| `{one.name}` | {one.about} | {one.severity} | {limits_of(one)} |"
        for one in RULE_KINDS.values()
    ]


def test_each_of_the_monitors_has_a_rule_and_a_test() -> None:
    table = section("Compared with Spidermon").splitlines()
    rows = [one.split("|")[1:-1] for one in table if one.startswith("| ")][1:]
    tests = "".join(path.read_text() for path in TESTS.glob("*.py"))

    assert len(rows) == 15
    for _, rules, test in rows:
        named = set(re.findall(r"`([a-z-]+)`", rules)) - {"min", "statuses", "fields"}
        assert named <= RULE_KINDS.keys()
        name, _, case = test.strip(" `").partition("[")
        assert f"def {name}(" in tests
        assert f'"{case.rstrip("]`")}"' in tests


def test_the_bounds_of_troubles_equal_the_simulation() -> None:
    lines = section("Rules").partition("\n### How soon trouble is found\n")[2].splitlines()
    rows = [[cell.strip(" `") for cell in one.split("|")[1:-1]] for one in lines if one[:2] == "| "]

    assert {kind.partition(":")[0]: ({rule}, float(bound)) for kind, rule, bound in rows[1:7]} == (
        TROUBLES
    )
