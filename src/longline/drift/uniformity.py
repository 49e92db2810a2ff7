"""Warn of suspiciously uniform records, which a wrong selector or wrong item pages produce.

A source that takes category pages for items, or reads the name of the site as each title, does not
fail: every request succeeds and every field is filled. But what distinguishes items is the same in
all records. A constant field alone proves nothing (a currency, a language, a brand), so only
titles, whole records and keys are checked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from longline.drift.profiles import SCORE, Cell, Shape

ALIKE = "@alike"
"""The name in a profile for uniform records that a person has accepted."""
_MIN_RECORDS = 10
_SAME = 0.95  # share of equal values; a few exceptions are allowed
_MIN_CONSTANT = 2  # fields of text
_MAX_SHOWN = 60  # characters of a value
_TITLES = ("title", "headline", "heading", "h1")
_NAMES = ("name", "label", "subject", "page_title", "og_title")
# Identity, position and time of collection differ even where nothing else does.
_IDENTITY = re.compile(
    r"(?:^|_)(?:id|key|url|uri|link|href|slug|uuid|guid|permalink|position|index|rank|row)$"
    r"|^(?:scraped|fetched|crawled|collected|retrieved|downloaded)_(?:at|on)$|^timestamp$"
)
# Fields that are naturally the same in a whole catalogue.
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


def find_uniformity(shapes: Iterable[Shape]) -> list[str]:
    """Return in which ways these records are suspiciously uniform, as sentences."""
    valid = [shape for shape in shapes if shape.is_valid]
    if len(valid) < _MIN_RECORDS:
        return []
    columns = _columns(valid)
    found = _same_title(columns, len(valid)) or _same_record(columns, len(valid))
    return [*found, *_category_keys(valid)]


def _columns(shapes: Sequence[Shape]) -> dict[str, _Column]:
    values: dict[str, Counter[Cell]] = {}
    for shape in shapes:
        for name, cell in shape.cells.items():
            if cell is not None and name != SCORE:
                values.setdefault(name, Counter())[cell] += 1
    columns = {}
    for name, counted in values.items():
        common, count = counted.most_common(1)[0]
        columns[name] = _Column(counted.total(), common, count, common.kind == "text")
    return columns


def _same_title(columns: dict[str, _Column], records: int) -> list[str]:
    """Return the title that nearly all records share, unless another name differs."""
    named = {name: columns[name] for name in (*_TITLES, *_NAMES) if name in columns}
    titles = [name for name in named if name in _TITLES]
    if not titles or not all(one.is_constant for one in named.values()):
        return []
    name = titles[0]
    title = named[name]
    if not title.is_text or title.filled < _SAME * records:
        return []
    text = " ".join(str(title.common.value).split())
    shown = f"{text[:_MAX_SHOWN]}…" if len(text) > _MAX_SHOWN else text
    return [f"{title.count} of {records} records have the same {name} ({shown})"]


def _same_record(columns: dict[str, _Column], records: int) -> list[str]:
    """Return that records differ only in their identity."""
    content = {name: one for name, one in columns.items() if not _IDENTITY.search(name)}
    if not all(one.is_constant for one in content.values()):
        return []
    same = [
        name
        for name, one in content.items()
        if one.is_text and one.filled >= _SAME * records and not _NATURAL.search(name)
    ]
    if len(same) < _MIN_CONSTANT:
        return []
    return [f"nearly all of {records} records have the same {', '.join(same[:4])}"]


def _category_keys(shapes: Sequence[Shape]) -> list[str]:
    found = [shape.key for shape in shapes if _CATEGORY.search(shape.key)]
    if len(found) < _SAME * len(shapes):
        return []
    how_many = f"{len(found)} of {len(shapes)} keys"
    return [f"{how_many} look like categories, not items (such as {found[0]})"]
