# Pins wording on purpose.
"""Old words that the glossary replaced do not come back in help texts, messages and documents."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from longline.core.errors import LonglineError
from tests.command_tree import commands

ROOT = Path(__file__).parent.parent
GENERATED = {"soak.md", "judged.md", "performance.md"}
PAGES = [
    path
    for pattern in ("*.md", "docs/*.md", "examples/*.*")
    for path in sorted(ROOT.glob(pattern))
    if path.name not in GENERATED
]
OLD_WORDS = (
    *("whoever", "nobody", "somebody", "anybody", "anew", "mend", "mends", "mended", "beside"),
    *("told", "tells", "stands", "figures", "picture", "pictures", "so many", "by hand"),
    *("what becomes of", "becomes of", "those that", "those who", "left alone", "leave alone"),
    *("pace", "paces", "manners", "crowding", "doorman", "at once", "keeper", "keepers", "crew"),
    *("ledger", "journal", "verdict", "parking", "nap", "veiled", "goes without saying"),
    *("hopeless", "straying", "sat out", "sits out", "as soon as it may", "signs of life"),
    *("had rather", "need not", "has it that"),
)
_RATE = r"\w+s an? (?:second|minute|hour)"  # "2 requests a second" is "2 requests per second"
_OLD = re.compile(
    rf"(?<![\w`-])(?:{'|'.join(map(re.escape, OLD_WORDS))}|{_RATE})(?![\w`-])", re.IGNORECASE
)
_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def old_words_in(text: str) -> list[str]:
    return [found.group() for found in _OLD.finditer(text)]


def help_of(command: click.Command) -> Iterator[str]:
    yield command.help or ""
    yield command.short_help or ""
    for parameter in command.params:
        yield getattr(parameter, "help", None) or ""


def errors() -> list[type[LonglineError]]:
    """Return the errors that the modules `errors` of all packages define."""
    paths = sorted((ROOT / "src" / "longline").rglob("errors.py"))
    names = [".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in paths]
    found: set[type[LonglineError]] = set()
    for name in names:
        values: list[Any] = list(vars(importlib.import_module(name)).values())
        found.update(
            one for one in values if inspect.isclass(one) and issubclass(one, LonglineError)
        )
    return sorted(found, key=lambda one: (one.__module__, one.__name__))


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_help_has_no_old_words(path: tuple[str, ...]) -> None:
    texts = help_of(commands()[path])

    assert {text: found for text in texts if (found := old_words_in(text))} == {}


@pytest.mark.parametrize("kind", errors(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_messages_have_no_old_words(kind: type[LonglineError]) -> None:
    values: list[Any] = [kind.message, kind.hint]  # some are properties
    texts = [value for value in values if isinstance(value, str)]

    assert [old_words_in(text) for text in texts if old_words_in(text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documents_have_no_old_words(page: Path) -> None:
    lines = _CODE.sub("", page.read_text("utf-8")).splitlines()

    assert [line for line in lines if old_words_in(line)] == []
