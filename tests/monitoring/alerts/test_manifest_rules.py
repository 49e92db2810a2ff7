"""Rules that a manifest changes for its source."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longline.config.documents import parse_document
from longline.config.settings import Settings
from longline.core.errors import BadFile
from longline.monitoring.alerts.manifest_rules import (
    ManifestRules,
    apply_source_rules,
    source_rules_in,
)
from longline.monitoring.alerts.rules import Rule, RuleValues, make_rules

MANIFEST = """
manifest: html
name: {name}
start: {{url: "http://{name}.test/"}}
items: {{links: a}}
fields: {{title: h1}}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, sources=[tmp_path / "sources"])  # type: ignore[arg-type]  # a list, as in a file


def write(settings: Settings, name: str, alerts: str = "") -> Path:
    path = Path(settings.sources[0]) / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(MANIFEST.format(name=name) + alerts)
    return path


def limits(rules: list[Rule], name: str, source: str) -> list[tuple[bool, float | None, str]]:
    """Return what applies to a source, of each rule of this name."""
    mine = [one for one in rules if one.name == name and one.applies_to(source)]
    return [(one.is_enabled, one.min, one.severity) for one in mine]


def test_a_manifest_changes_rules_for_its_source_only(settings: Settings) -> None:
    write(settings, "shop", "alerts: {few-records: {min: 500}, retries: {enabled: false}}\n")
    write(settings, "other")
    base = make_rules({"few-records": RuleValues(min=5, severity="warning", only=("o*",))})

    rules = [*apply_source_rules(base, ManifestRules(settings).read())]

    assert limits(rules, "few-records", "shop") == [(True, 500, "warning")]
    assert limits(rules, "few-records", "other") == [(True, 5, "warning")]
    assert limits(rules, "retries", "shop") == [(False, None, "warning")]
    assert limits(rules, "retries", "other") == [(True, None, "warning")]


def test_a_changed_manifest_is_read_again(settings: Settings, logged: list[str]) -> None:
    path = write(settings, "shop", "alerts: {few-records: {min: 500}}\n")
    manifests = ManifestRules(settings)
    read = [manifests.read()["shop"]["few-records"].min]

    for number, alerts in enumerate(
        ("alerts: {few-records: {min: -1}}\n", "", "alerts: {drift: {}}")
    ):
        write(settings, "shop", alerts)
        os.utime(path, (number, number))
        read.append(str([*manifests.read().get("shop", {})]))
        manifests.read()
    path.unlink()

    assert read == [500, "['few-records']", "[]", "['drift']"]
    assert len(logged) == 1
    assert manifests.read() == {}


@pytest.mark.parametrize(
    ("alerts", "column"),
    [
        ("few-recrods: {min: 1}", 3),
        ("ban: {enabled: false}", 3),
        ("few-records: {max: 1}", 3),
        ("few-records: {only: [shop]}", 17),
        ("few-records: {for: 5m}", 17),
        ("stale-data: {max: soon}", 3),
        ("drift: {enabled: maybe}", 11),
    ],
)
def test_invalid_rules_of_a_manifest_are_named(alerts: str, column: int) -> None:
    text = MANIFEST.format(name="shop") + f"alerts:\n  {alerts}\n"

    with pytest.raises(BadFile) as caught:
        source_rules_in(parse_document(text.encode(), Path("shop.yaml")))

    assert (caught.value.line, caught.value.column) == (len(text.splitlines()), column)
