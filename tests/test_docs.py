"""What the documents show and point to is really there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from longline.model import JobState
from longline.orchestrator import Orchestrator
from longline.sandbox.web import PracticeWeb, WebOptions
from virtual import VirtualClock

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "my_source.py"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TEST = re.compile(r"`(tests/[\w/]+\.py|…)::(\w+)`")
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def text_of(page: Path) -> str:
    """Return a page without its blocks of code."""
    return _CODE.sub("", page.read_text("utf-8"))


def links_of(page: Path) -> list[tuple[Path, str]]:
    """Return where a page points to in this repository: files, and places in them."""
    found = (link.partition("#") for link in _LINK.findall(text_of(page)) if "://" not in link)
    return [(page.parent / path if path else page, place) for path, _, place in found]


def places_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one).lower().replace(" ", "-") for one in headings}


def named_in(page: Path) -> list[tuple[str, str]]:
    """Return the tests that a page names, by file and function; … is the file before."""
    found: list[tuple[str, str]] = []
    for path, name in _TEST.findall(page.read_text("utf-8")):
        found.append((found[-1][0] if path == "…" else path, name))
    return found


def test_the_source_in_the_readme_is_the_example() -> None:
    blocks = _PYTHON.findall((ROOT / "README.md").read_text("utf-8"))

    assert EXAMPLE.read_text("utf-8") in blocks


async def test_the_example_collects_from_a_practice_web(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with (
        PracticeWeb(WebOptions(items=5), clock=clock) as web,
        Orchestrator(str(EXAMPLE), {"site": web.url}, home=tmp_path, clock=clock) as longline,
    ):
        report = await longline.execute()
        record = await longline.store.records.get(str(web.catalogue.obtainable[0]))

    assert (report.state, report.progress.successful) == (JobState.COMPLETE, 5)
    assert record["data"]["title"]
    assert record["data"]["author"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_points_to_is_there(page: Path) -> None:
    broken = [
        (str(path), place)
        for path, place in links_of(page)
        if not path.exists() or (place and place not in places_of(path))
    ]

    assert broken == []


def test_every_test_that_proves_a_requirement_exists() -> None:
    named = named_in(ROOT / "docs" / "requirements.md")

    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file() or f"def {name}(" not in (ROOT / path).read_text("utf-8")
    ]

    assert len(named) > 50
    assert missing == []
