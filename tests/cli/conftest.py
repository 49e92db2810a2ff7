"""Fixtures: the command line in an empty home, and a source that needs no web."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import SHOP, Terminal


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGLINE_HOME", str(home))
    monkeypatch.delenv("LONGLINE_DATABASE_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return home


@pytest.fixture
def longline(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    del home  # every command of a test works there
    return Terminal(monkeypatch, capsys)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    return path
