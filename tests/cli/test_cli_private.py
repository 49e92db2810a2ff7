"""A home and all that commands put into it are closed to other users."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.sandbox.web import PracticeWeb
from tests.cli.served import served
from tests.cli.terminal import Terminal


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


@pytest.fixture(scope="module")
def web() -> Iterator[PracticeWeb]:
    with served(items=5) as web:
        yield web


@pytest.fixture
def filled(longline: Terminal, home: Path, tmp_path: Path, web: PracticeWeb) -> Path:
    """A home in which everything was done that writes to it."""
    manifest = tmp_path / "found.yaml"
    url = f"{web.url}/generated/3/"
    assert longline("sources", "new", url, "--yes", "-o", manifest).code == 0
    words = ("--archive", "--cache", "--rate", "unlimited", "--json")
    assert longline("run", manifest, *words).code == 0
    assert longline("export", "-o", tmp_path / "out.csv", "--redact").code == 0
    assert longline("limits", "pin", "a.test", "--rate", "1").code == 0
    return home


def modes(home: Path) -> dict[str, int]:
    found = [home, *home.rglob("*")]
    return {str(one.relative_to(home)): stat.S_IMODE(one.stat().st_mode) for one in found}


def test_everything_in_a_home_is_private(filled: Path) -> None:
    found = modes(filled)

    assert {"longline.sqlite", "pace.sqlite", "cache.sqlite", "archive", "checkpoints"} <= set(
        found
    )
    assert any(name.endswith(".warc.gz") for name in found)
    assert {name: f"{mode:o}" for name, mode in found.items() if mode & 0o077} == {}


def test_exports_follow_the_umask(filled: Path, tmp_path: Path) -> None:
    del filled

    for name in ("out.csv", "found.yaml"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o666


def test_the_home_of_a_demo_is_private(home: Path, longline: Terminal) -> None:
    assert longline("demo", "--items", "2", "--faults", "0", "--json").code == 0

    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "demo" / "longline.sqlite").stat().st_mode) == 0o600


def test_doctor_reports_and_fixes_an_older_home(filled: Path, longline: Terminal) -> None:
    filled.chmod(0o755)
    (filled / "longline.sqlite").chmod(0o644)

    before = longline("doctor", "--json").last
    fixed = longline("doctor", "--fix", "--json")
    after = longline("doctor", "--json").last

    verdicts = [
        [one["verdict"] for one in result if one["about"] == "permissions"]
        for result in (before, fixed.last, after)
    ]
    assert verdicts == [["warning"], ["ok", "ok"], ["ok"]]
    assert {name: f"{mode:o}" for name, mode in modes(filled).items() if mode & 0o077} == {}
