"""Two records as rows of the store, judged by the rules: a pair with its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from longline.config.matching import Rules
from longline.matching.comparing import Comparison, compare
from longline.stores.matches_words import Judge, Pair

Row = Mapping[str, Any]
_LONGEST = 120  # letters of a text in the evidence


def pair_of(ends: tuple[int, int], versions: tuple[int, int], comparison: Comparison) -> Pair:
    """Return two records, by id and version, with what came of comparing them."""
    evidence = [
        asdict(one) | {"left": _shortened(one.left), "right": _shortened(one.right)}
        for one in comparison.evidence
    ]
    return Pair(*ends, versions, comparison.score, comparison.is_match, evidence)


def judged(left: Row, right: Row, rules: Rules) -> Pair:
    """Return two rows as a pair, whatever comes of it; the smaller id is the left one."""
    comparison = compare(left["data"], right["data"], rules)
    return pair_of((left["id"], right["id"]), (left["version"], right["version"]), comparison)


def judge_by(rules: Rules) -> Judge:
    """Return who says of two rows whether one field alone forbids that they are the same."""

    def judge(left: Row, right: Row) -> Pair | None:
        comparison = compare(left["data"], right["data"], rules)
        if not comparison.is_forbidden:
            return None
        return pair_of((left["id"], right["id"]), (left["version"], right["version"]), comparison)

    return judge


def _shortened(value: Any) -> Any:
    is_long = isinstance(value, str) and len(value) > _LONGEST
    return f"{value[: _LONGEST - 1]}…" if is_long else value
