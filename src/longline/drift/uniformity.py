"""Records that are suspiciously alike: what a wrong selector or wrong item pages look like.

A source that takes category pages for items, or reads the name of the site for each title, fails
nowhere: every page answers and every field is filled. Its records give it away, since what tells
items apart is the same in all of them. A constant field alone proves nothing (a currency, a
language, a brand), so only titles, whole records and keys are judged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from longline.drift.profiles import SCORE, Cell, Shape

ALIKE = "@alike"
"""The name under which a profile says that a person has accepted records that are alike."""
_FEWEST = 10  # records; fewer may well be alike
_SAME = 0.95  # of the values; a few exceptions do not make a list
_FEWEST_CONSTANT = 2  # fields of text
_SHOWN = 60  # characters of a value
_TITLES = ("title", "headline", "heading", "h1")
_NAMES = ("name", "label", "subject", "page_title", "og_title")
# Who a record is, where it is listed and when it was read differs even where nothing else does.
_IDENTITY = re.compile(
    r"(?:^|_)(?:id|key|url|uri|link|href|slug|uuid|guid|permalink|position|index|rank|row)$"
    r"|^(?:scraped|fetched|crawled|collected|retrieved|downloaded)_(?:at|on)$|^timestamp$"
)
# What is the same in a whole catalogue by its nature.
_NATURAL = re.compile(
    r"currency|lang|locale|source|site|country|region|city|type|kind|status|state|unit|brand|seller"
    r"|vendor|provider|shop|store|publisher|licen[cs]e|version|encoding|format|availability|condition"
)
_CATEGORY = re.compile(
    r"(?:^|/)(?:tags?|categor(?:y|ies)|genres?|topics?|labels?|archives?|page)"
    r"/[^/]+(?:/page/\d+)?/?$",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Column:
    """One field over all records: how many have it, and its most common value."""

    filled: int
    common: Cell
    count: int
    is_text: bool

    @property
    def is_constant(self) -> bool:
        """Whether nearly all records have the same value."""
        return self.count >= _SAME * self.filled


def alike(shapes: Iterable[Shape]) -> list[str]:
    """Return in which ways these records are suspiciously alike, as sentences."""
    valid = [shape for shape in shapes if shape.is_valid]
    if len(valid) < _FEWEST:
        return []
    columns = _columns(valid)
    found = _titles(columns, len(valid)) or _records(columns, len(valid))
    return [*found, *_keys(valid)]


def _columns(shapes: Sequence[Shape]) -> dict[str, _Column]:
    values: dict[str, Counter[Cell]] = {}
    for shape in shapes:
        for name, cell in shape.cells.items():
            if cell is not None and name != SCORE:
                values.setdefault(name, Counter())[cell] += 1
    return {name: _column(counted) for name, counted in values.items()}


def _column(counted: Counter[Cell]) -> _Column:
    common, count = counted.most_common(1)[0]
    return _Column(counted.total(), common, count, common.kind == "text")


def _titles(columns: dict[str, _Column], records: int) -> list[str]:
    """Return the title that nearly all records share, unless another name tells them apart."""
    named = {name: columns[name] for name in (*_TITLES, *_NAMES) if name in columns}
    titles = [name for name in named if name in _TITLES]
    if not titles or not all(one.is_constant for one in named.values()):
        return []
    name = titles[0]
    title = named[name]
    if not title.is_text or title.filled < _SAME * records:
        return []
    return [f"{title.count} of {records} records have the same {name} ({_shown(title.common)})"]


def _records(columns: dict[str, _Column], records: int) -> list[str]:
    """Say that nothing but what identifies a record differs between them."""
    content = {name: one for name, one in columns.items() if not _IDENTITY.search(name)}
    if not all(one.is_constant for one in content.values()):
        return []
    same = [
        name
        for name, one in content.items()
        if one.is_text and one.filled >= _SAME * records and not _NATURAL.search(name)
    ]
    if len(same) < _FEWEST_CONSTANT:
        return []
    return [f"nearly all of {records} records have the same {', '.join(same[:4])}"]


def _keys(shapes: Sequence[Shape]) -> list[str]:
    found = [shape.key for shape in shapes if _CATEGORY.search(shape.key)]
    if len(found) < _SAME * len(shapes):
        return []
    how_many = f"{len(found)} of {len(shapes)} keys"
    return [f"{how_many} look like those of categories and not of items (such as {found[0]})"]


def _shown(cell: Cell) -> str:
    text = " ".join(str(cell.value).split())
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text
