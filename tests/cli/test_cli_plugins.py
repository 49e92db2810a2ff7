"""longline plugins: what other packages add, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import SHOP, Terminal

ENTRIES = """
[longline.sources]
boats = fleet_code:Shop
rows = fleet_code:rows
wrecks = fleet_code:Wrecks
[longline.exporters]
paper = fleet_code:Paper
[longline.subscribers]
radio = fleet_code:radio
flags = fleet_code:rows
"""


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with sources and a subscriber, and with some that are not, or are broken."""
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "fleet-2.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: fleet\nVersion: 2.1\n")
    (folder / "entry_points.txt").write_text(ENTRIES)
    code = "Wrecks = 5\ndef rows():\n    return [{'id': 1}]\n"
    code += "async def radio(event):\n    pass\n"
    (tmp_path / "fleet_code.py").write_text(f"{SHOP}\n{code}")


@pytest.mark.usefixtures("fleet")
def test_plugins_are_listed_with_what_is_wrong_with_them(longline: Terminal) -> None:
    answer = longline("plugins", "--json")

    result = {one["name"]: one["problem"] for one in answer.last if one["distribution"] == "fleet"}
    assert answer.code == 0
    assert (result["boats"], result["rows"], result["radio"]) == (None, None, None)
    assert "async" in result["flags"]
    assert "longline.Source" in result["wrecks"]
    assert "Paper" in result["paper"]


@pytest.mark.usefixtures("fleet")
def test_plugins_are_listed_for_people(longline: Terminal) -> None:
    answer = longline("plugins")

    lines = {tuple(line.split()[:2]): line for line in answer.out.splitlines()}
    assert answer.code == 0
    assert lines["source", "boats"].split()[-1] == "ok"
    assert "AttributeError" in lines["exporter", "paper"]


def test_no_plugins_are_not_a_failure(longline: Terminal) -> None:
    answer = longline("plugins")

    assert answer.code == 0
    assert "longline.sources" in answer.out
    assert longline("plugins", "--json").last == []
