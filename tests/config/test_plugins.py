"""Packages that add things by entry points: found, loaded with care, reported when broken."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longline.config.plugins import SOURCES, Plugin, list_plugins, load_plugin, plugin_names
from longline.core.errors import BadSource
from tests.config.messages import absent

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package of this name with these entry points and this code."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(name: str, entries: str, code: str = "", version: str = "1.0") -> None:
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        (folder / "entry_points.txt").write_text(entries)
        (tmp_path / f"{name}_code.py").write_text(code)
        sys.modules.pop(f"{name}_code", None)

    return put


def those_of(*names: str) -> list[Plugin]:
    return [one for one in list_plugins() if one.distribution in names]


def test_what_packages_add_is_found(install: Install) -> None:
    install(
        "plug",
        "[longline.sources]\nboats = plug_code:Boats\n[other]\nx = plug_code:X\n",
        "Boats = 5",
    )

    assert those_of("plug") == [Plugin(SOURCES, "boats", "plug_code:Boats", "plug", "1.0")]
    assert "boats" in plugin_names(SOURCES)
    assert load_plugin(SOURCES, "boats") == 5


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("1/0", "ZeroDivisionError: "),
        ("raise SystemExit(2)", "SystemExit: 2"),
        ("", "AttributeError: "),
        ("import nowhere", "ModuleNotFoundError: "),
        ("def (", "SyntaxError"),
    ],
)
def test_a_broken_plugin_is_reported_and_breaks_nothing(
    install: Install, code: str, problem: str
) -> None:
    install("bad", "[longline.exporters]\nthing = bad_code:Thing\n", code)
    install("good", "[longline.stages]\nthing = good_code:Thing\n", "Thing = 1")

    good, bad = those_of("bad", "good")

    assert (good.distribution, good.problem) == ("good", None)
    assert problem in str(bad.problem)
    with pytest.raises(BadSource) as refused:
        load_plugin("longline.exporters", "thing")

    assert absent(str(refused.value), "thing bad 1.0") == []


def test_what_is_loaded_is_checked(install: Install) -> None:
    install("plug", "[longline.sources]\nboats = plug_code:Boats\n", "Boats = 5")

    def check(name: str, found: Any) -> None:
        raise BadSource(name, f"{found}?")

    (result,) = [one for one in list_plugins({SOURCES: check}) if one.distribution == "plug"]

    assert absent(str(result.problem), "BadSource boats 5?") == []


def test_of_two_with_one_name_the_second_is_reported(install: Install) -> None:
    install("aaa", "[longline.sources]\nboats = aaa_code:Boats\n", "Boats = 'a'")
    install("bbb", "[longline.sources]\nboats = bbb_code:Boats\n", "Boats = 'b'")

    problems = {one.distribution: one.problem for one in those_of("aaa", "bbb")}
    first = load_plugin(SOURCES, "boats") * 3

    assert problems.pop(first) is None
    (second,) = problems.values()
    assert first in str(second)


def test_metadata_that_cannot_be_read_breaks_nothing(install: Install, tmp_path: Path) -> None:
    install("torn", "[longline.sources\nboats")
    (tmp_path / "empty-1.0.dist-info").mkdir()

    assert those_of("torn") == []


def test_an_unknown_name_returns_none() -> None:
    assert load_plugin(SOURCES, "nobody") is None
