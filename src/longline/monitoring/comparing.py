"""What differs between records of now and a profile: only what is large, new and no accident.

Large: half of the records, or so, show it. New: no block of the profile has ever shown it. No
accident: chance alone would need many million tries, since there are many fields and many looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log
from statistics import median

from longline.monitoring.evidence import (
    chance_of_fewer,
    chance_of_more,
    share_above,
    share_below,
)
from longline.monitoring.profiles import FieldProfile, Profile, Sketch, Tallies, Tally
from longline.monitoring.shapes import SCORE

VALID = "@valid"
"""The share of items that are records at all, told like a field."""
ITEMS = "@items"
"""How many items a run has found, told like a field."""
DOUBT = 1e-7
"""How likely an accident may be at most, where thousands of looks are taken."""
_LARGE = 0.3  # of the records; less is what sites do all the time
_NEW = 0.15  # beyond what a block has shown
_MOST = 0.6  # of the values have to lie beyond the usual
_FEWEST_KINDS = 8
_FEWEST_SIZES = 24
_FEWEST_EQUAL = 30
_SKIPPED = 20_000  # records of a list, that others who work on it may be ahead
_SHORT = 12  # characters or entries; what is shorter cannot collapse


_NAMES = {
    VALID: "the share of items that are valid",
    ITEMS: "the number of items found",
    SCORE: "the quality score",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that is not what it was: `now` and `before` in words that make a sentence."""

    field: str
    now: str
    before: str

    def __str__(self) -> str:
        return f"{_NAMES.get(self.field, self.field)} {self.now}, {self.before} before"


def differences(
    baseline: Profile, recent: Tallies, *, is_history: bool, doubt: float = DOUBT
) -> list[Difference]:
    """Return the fields that differ, each once.

    Args:
        baseline: what is usual.
        recent: what a few records in a row, or a whole run, have shown.
        is_history: the baseline is of whole runs, not of the beginning of this one. A list may be
            sorted by price: then only whole runs say how high prices go.
        doubt: how likely an accident may be at most.
    """
    found = list(_of_fields(baseline, recent, is_history=is_history, doubt=doubt))
    named = {one.field for one in found}
    plain = [one for one in found if one.field != SCORE and not _parents(one.field) & named]
    return plain or found or list(_of_validity(baseline, recent, doubt))


def _of_fields(
    baseline: Profile, recent: Tallies, *, is_history: bool, doubt: float
) -> Iterator[Difference]:
    nothing = Tally()
    for name, known in baseline.fields.items():
        now = recent.fields.get(name, nothing)
        found = _filled(baseline, name, now, baseline.seen_in(recent, name), doubt) or _kind(
            name, known, now, doubt
        )
        if found is None and now.filled >= _FEWEST_SIZES:
            found = _equal(name, known, now) or _size(name, known, now, is_history=is_history)
        if found is not None:
            yield found


def _parents(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts))}


def _filled(baseline: Profile, name: str, now: Tally, seen: int, doubt: float) -> Difference | None:
    known = baseline.fields[name]
    if not seen or not known.filled:
        return None
    before, share = baseline.share(name), now.filled / seen
    lowest, _ = known.extremes.get("filled", (before, before))
    if before - share < _LARGE or share > max(lowest - _NEW, 0.0) or lowest == 0.0:
        return None
    if chance_of_fewer(known.filled, baseline.seen(name), now.filled, seen) > doubt:
        return None
    # What was refused had a value, which was a wrong one.
    is_refused = 2 * now.refused > seen - now.filled
    how = "valid" if is_refused else "filled"
    return Difference(name, f"is {how} in {now.filled} of {seen} records", f"in {before:.0%}")


def _kind(name: str, known: FieldProfile, now: Tally, doubt: float) -> Difference | None:
    if now.filled < _FEWEST_KINDS or not known.filled:
        return None
    kind, count = max(now.kinds.items(), key=lambda one: one[1])
    before, share = known.kinds.get(kind, 0), count / now.filled
    usual = before / known.filled
    _, highest = known.extremes.get(f"kind {kind}", (usual, usual))
    if share - usual < 2 * _LARGE or share < highest + _NEW:
        return None
    if chance_of_more(before, known.filled, count, now.filled) > doubt:
        return None
    main = max(known.kinds, key=lambda one: known.kinds[one])
    return Difference(name, f"is a {kind} in {count} of {now.filled} records", f"a {main}")


def _equal(name: str, known: FieldProfile, now: Tally) -> Difference | None:
    # Where half of the values of every block differ, thirty equal ones in a row are no accident.
    fewest, _ = known.extremes.get("distinct", (0.0, 0.0))
    if len(now.values) != 1 or now.filled < _FEWEST_EQUAL or fewest < 0.5:  # noqa: PLR2004  # half
        return None
    if name == SCORE or not now.sizes.keys() & {"text", "number"}:
        return None
    return Difference(name, "is the same in all records", "different ones")


def _size(name: str, known: FieldProfile, now: Tally, *, is_history: bool) -> Difference | None:
    for kind, sizes in now.sizes.items():
        sketch, ends = known.sizes.get(kind), known.extremes.get(f"size {kind}")
        if sketch is None or ends is None or min(len(sizes), sketch.count) < _FEWEST_SIZES:
            continue
        if kind == "number" and not is_history:
            is_moved = _is_far_out(sketch, sizes, is_counting=_is_counting(known, sketch))
        elif kind == "number":
            is_moved = not _is_identifier(known, sketch) and _is_shifted(name, sketch, ends, sizes)
        else:
            is_moved = _is_resized(sketch, ends, sizes, is_history=is_history)
        if is_moved:
            before, middle = sketch.quantile(0.5), median(sizes)
            return Difference(name, _MEASURES[kind].format(middle), f"{before:g}")
    return None


_MEASURES = {
    "number": "is about {:g}",
    "text": "has about {:g} characters",
    "list": "has about {:g} entries",
}


def _is_identifier(known: FieldProfile, sketch: Sketch) -> bool:
    """Say whether it is a number of each record's own, which just goes up from run to run."""
    fewest, _ = known.extremes.get("distinct", (0.0, 0.0))
    return fewest == 1.0 and all(float(value).is_integer() for value in sketch.values)


def _is_counting(known: FieldProfile, sketch: Sketch) -> bool:
    """Say whether it counts the records: a number of their own, and few of them are left out."""
    return _is_identifier(known, sketch) and sketch.high - sketch.low < 2 * sketch.count


def _is_far_out(sketch: Sketch, values: list[float], *, is_counting: bool) -> bool:
    span = 3 * max(sketch.high - sketch.low, abs(sketch.high), abs(sketch.low), 10.0)
    if is_counting:
        span = max(span, _SKIPPED)
    low, high = sketch.low - span, sketch.high + span
    return share_below(values, low) + share_above(values, high) >= _MOST


def _is_shifted(name: str, sketch: Sketch, ends: tuple[float, float], values: list[float]) -> bool:
    # Prices differ by factors, not by amounts; a score has fixed ends.
    is_factor = name != SCORE and sketch.low > 0 and min(values) > 0
    scaled: Callable[[float], float] = log if is_factor else float
    low, high = scaled(sketch.quantile(0.05)), scaled(sketch.quantile(0.95))
    least = log(1.5) if is_factor else max(1.0, abs(sketch.quantile(0.5)) / 10)
    margin = max((high - low) / 4, least)
    middle = scaled(median(values))
    if middle < scaled(ends[0]) - margin:
        return share_below(values, sketch.quantile(0.05)) >= _MOST
    is_higher = middle > scaled(ends[1]) + margin and name != SCORE
    return is_higher and share_above(values, sketch.quantile(0.95)) >= _MOST


def _is_resized(
    sketch: Sketch, ends: tuple[float, float], sizes: list[float], *, is_history: bool
) -> bool:
    factor = 2 if is_history else 4  # the beginning of a run knows less of what is usual
    middle = median(sizes)
    if ends[0] >= _SHORT and middle < ends[0] / factor:
        return share_below(sizes, sketch.quantile(0.05)) >= _MOST
    is_larger = middle > 2 * factor * ends[1] + _SHORT
    return is_larger and share_above(sizes, sketch.high) >= _MOST


def _of_validity(baseline: Profile, recent: Tallies, doubt: float) -> Iterator[Difference]:
    before_all, now_all = baseline.records + baseline.invalid, recent.valid + recent.invalid
    if not before_all or not now_all:
        return
    before, now = baseline.records / before_all, recent.valid / now_all
    # What the failures are about, when they say so, is told under its name.
    known = (one for name, one in recent.fields.items() if name in baseline.fields)
    named = max((one.mentions for one in known), default=0)
    if before - now < _LARGE or named > recent.invalid / 2:
        return
    if chance_of_fewer(baseline.records, before_all, recent.valid, now_all) <= doubt:
        yield Difference(VALID, f"is {now:.0%}", f"{before:.0%}")
