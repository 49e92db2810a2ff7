"""The catalogue's list: filtered, sorted and cut into pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from longline.core.errors import BadOption
from longline.sandbox.templates.catalogue import Catalogue
from longline.sandbox.templates.responses import search_item
from longline.sandbox.templates.template import Summary

DEFAULT_ROWS, MOST_ROWS = 20, 100
_POPULARITY = frozenset({"views", "rank", "trendingScore"})
_KEPT = 4  # a client pages through one list at a time


@dataclass(frozen=True, slots=True)
class Query:
    """A search request; `categories` are names, of which any may match."""

    page: int = 1
    rows: int = DEFAULT_ROWS
    text: str = ""
    categories: tuple[str, ...] = ()
    sort: str = ""

    @classmethod
    def parse(cls, params: Mapping[str, str]) -> Query:
        """Read the parameters; `apps`, `nodes` and `price` are ignored.

        Raises:
            BadOption: a number is not one, or is out of bounds.
        """
        rows = params.get("rows", params.get("limit", str(DEFAULT_ROWS)))
        return cls(
            page=_query_number("page", params.get("page", "1"), 1_000_000),
            rows=_query_number("rows", rows, MOST_ROWS),
            text=params.get("search", "").lower(),
            categories=tuple(name for name in params.get("category", "").split(",") if name),
            sort=params.get("sort", "").split(",")[0],
        )


class Search:
    """Answers `/templates/search` from a catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._found = lru_cache(maxsize=_KEPT)(self._find)

    def answer(self, query: Query) -> dict[str, Any]:
        """Return one page of the list; past the end it is empty."""
        ids, facets = self._found(query.text, query.categories, query.sort)
        start = (query.page - 1) * query.rows
        page = ids[start : start + query.rows]
        return {
            "totalWorkflows": len(ids),
            "workflows": [search_item(self._catalogue.template(number)) for number in page],
            "filters": facets,
        }

    def _find(
        self, text: str, categories: tuple[str, ...], sort: str
    ) -> tuple[Sequence[int], list[dict[str, Any]]]:
        wanted = frozenset(categories)
        found = [
            summary
            for summary in self._catalogue.summaries()
            if (not wanted or not wanted.isdisjoint(summary.categories))
            and text in summary.title.lower()
        ]
        field, _, direction = sort.partition(":")
        key = _by_views if field in _POPULARITY else _by_date
        found.sort(key=key, reverse=direction != "asc")
        return [summary.id for summary in found], [_facet(found)]


def _by_views(summary: Summary) -> float:
    return summary.views


def _by_date(summary: Summary) -> float:
    return summary.created


def _facet(found: Sequence[Summary]) -> dict[str, Any]:
    counts = Counter(name for summary in found for name in summary.categories)
    return {
        "field_name": "categories",
        "sampled": False,
        "stats": {"total_values": len(counts)},
        "counts": [
            {"count": count, "highlighted": name, "value": name}
            for name, count in counts.most_common()
        ],
    }


def _query_number(name: str, text: str, limit: int) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= limit:
        raise BadOption(name, f"must be a number from 1 to {limit}, not {text!r}")
    return int(text)
