"""Detect drift against a baseline, while a job runs and over the whole run."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median

from longline.drift.profiles import (
    BLOCK,
    SCORE,
    BlockTally,
    Cell,
    FieldProfile,
    FieldTally,
    Profile,
    RecordKinds,
    Shape,
    Sketch,
    chance_of_fewer,
    profile_run,
    tally_block,
)

# ---------------- Suspiciously uniform records: a wrong selector, or pages that are not items

ALIKE = "@alike"
"""The name in a profile for uniform records that a person has accepted."""
_MIN_UNIFORM = 10
_SAME = 0.95  # share of equal values; a few exceptions are allowed
_MIN_CONSTANT = 2  # fields of text
_MAX_SHOWN = 60  # characters of a value
_TITLES = ("title", "headline", "heading", "h1")
_OTHER_TITLES = ("name", "label", "subject", "page_title", "og_title")
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


def find_uniformity(shapes: Iterable[Shape]) -> list[str]:
    """Return in which ways these records are suspiciously uniform, as sentences."""
    valid = [shape for shape in shapes if shape.is_valid]
    count = len(valid)
    if count < _MIN_UNIFORM:
        return []
    columns: dict[str, Counter[Cell]] = {}
    for shape in valid:
        for name, cell in shape.cells.items():
            if cell is not None and name != SCORE:
                columns.setdefault(name, Counter())[cell] += 1
    common = {name: cells.most_common(1)[0] for name, cells in columns.items()}
    varying = {name for name, cells in columns.items() if common[name][1] < _SAME * cells.total()}
    constant = {
        name: cell
        for name, (cell, _) in common.items()
        if name not in varying and cell.kind == "text"
        if columns[name].total() >= _SAME * count
    }
    content = {name for name in columns if not _IDENTITY.search(name)}
    titles = [name for name in _TITLES if name in constant]
    same = [name for name in constant if name in content and not _NATURAL.search(name)]
    found = []
    if titles and not varying.intersection(_TITLES + _OTHER_TITLES):
        shown = " ".join(str(constant[titles[0]].value).split())[:_MAX_SHOWN]
        found.append(f"nearly all of {count} records have the same {titles[0]} ({shown})")
    elif len(same) >= _MIN_CONSTANT and not varying & content:
        found.append(f"nearly all of {count} records have the same {', '.join(same[:4])}")
    categories = [shape.key for shape in valid if _CATEGORY.search(shape.key)]
    if len(categories) >= _SAME * count:
        found.append(
            f"{len(categories)} of {count} keys look like categories, not items "
            f"(such as {categories[0]})"
        )
    return found


# ---------------- Drift of a block or a run against a profile: large, new and unlikely changes

VALID = "@valid"
"""The share of items that became records, reported like a field."""
ITEMS = "@items"
"""The number of items of a run, reported like a field."""
_MAX_P = 1e-7  # highest probability of chance that counts as drift, for thousands of checks
_MIN_CHANGE = 0.3  # share of the records; smaller changes are normal
_MARGIN = 0.15  # beyond the extremes of the baseline
_MIN_OUTSIDE = 0.6  # share of values outside the usual range
_MIN_KINDS = 8
_MIN_SIZES = 24
_MIN_EQUAL = 30
_MIN_LENGTH = 12  # characters or entries; shorter values cannot collapse


_NAMES = {
    VALID: "the share of valid items",
    ITEMS: "the number of items found",
    SCORE: "the quality score",
}


@dataclass(frozen=True, slots=True)
class FieldDrift:
    """A field that has drifted; `now` and `before` are parts of a sentence.

    During a run: the item at which it was noticed, and the first key.
    """

    field: str
    now: str
    before: str
    place: int = 0
    since: str = ""

    def __str__(self) -> str:
        since = f"; since item {self.since}" if self.since else ""
        name = _NAMES.get(self.field, self.field)
        return f"{name} {self.now} (before: {self.before}{since})"


def find_drift(baseline: Profile, recent: BlockTally, *, is_history: bool) -> list[FieldDrift]:
    """Return the fields that differ, each once.

    Args:
        baseline: the usual values.
        recent: a few consecutive records, or a whole run.
        is_history: the baseline is of whole runs, not of the beginning of this one. In a list that
            is sorted by price, only whole runs show the range of prices.
    """
    found: list[FieldDrift] = []
    for name, known in baseline.fields.items():
        now = recent.fields.get(name, FieldTally())
        seen = baseline.seen_in(recent, name)
        one = _find_emptied(baseline, name, now, seen) or _find_new_kind(name, known, now)
        if one is None and now.filled >= _MIN_SIZES:
            one = _find_new_size(name, known, now, is_history=is_history)
            one = one or _find_constant(name, known, now)
        found += [one] if one else []
    named = {one.field for one in found}
    plain = [
        one
        for one in found
        if one.field != SCORE and not any(one.field.startswith(f"{name}.") for name in named)
    ]
    return plain or found or _find_invalid(baseline, recent)


def _find_emptied(baseline: Profile, name: str, now: FieldTally, seen: int) -> FieldDrift | None:
    known = baseline.fields[name]
    if not seen or not known.filled:
        return None
    before, share = baseline.share(name), now.filled / seen
    lowest, _ = known.extremes.get("filled", (before, before))
    if before - share < _MIN_CHANGE or share > max(lowest - _MARGIN, 0.0) or lowest == 0.0:
        return None
    if chance_of_fewer(known.filled, baseline.seen(name), now.filled, seen) > _MAX_P:
        return None
    how = "valid" if 2 * now.mentions > seen - now.filled else "present"
    return FieldDrift(name, f"is {how} in {now.filled} of {seen} records", f"{before:.0%}")


def _find_new_kind(name: str, known: FieldProfile, now: FieldTally) -> FieldDrift | None:
    if now.filled < _MIN_KINDS or not known.filled:
        return None
    kind, count = now.kinds.most_common(1)[0]
    before, share = known.kinds[kind], count / now.filled
    usual = before / known.filled
    _, highest = known.extremes.get(f"kind {kind}", (usual, usual))
    if share - usual < 2 * _MIN_CHANGE or share < highest + _MARGIN:
        return None
    # As many of this kind, or more, by chance.
    chance = chance_of_fewer(known.filled - before, known.filled, now.filled - count, now.filled)
    if chance > _MAX_P:
        return None
    main = known.kinds.most_common(1)[0][0]
    return FieldDrift(name, f"is of type {kind} in {count} of {now.filled} records", main)


def _find_constant(name: str, known: FieldProfile, now: FieldTally) -> FieldDrift | None:
    # Where half of the values of every block differ, thirty equal ones are not chance.
    fewest, _ = known.extremes.get("distinct", (0.0, 0.0))
    if len(now.values) != 1 or now.filled < _MIN_EQUAL or fewest < 0.5:  # noqa: PLR2004  # half
        return None
    if name == SCORE or not now.sizes.keys() & {"text", "number"}:
        return None
    return FieldDrift(name, "is the same in all records", "different values")


def _find_new_size(
    name: str, known: FieldProfile, now: FieldTally, *, is_history: bool
) -> FieldDrift | None:
    for kind, sizes in now.sizes.items():
        sketch, ends = known.sizes.get(kind), known.extremes.get(f"size {kind}")
        if sketch is None or ends is None or min(len(sizes), sketch.count) < _MIN_SIZES:
            continue
        if kind == "number":  # the beginning of a sorted list does not show its range
            is_identifier = _is_identifier(known, sketch)
            is_moved = is_history and not is_identifier and _is_shifted(name, sketch, ends, sizes)
        else:
            is_moved = _is_resized(sketch, ends, sizes, is_history=is_history)
        if is_moved:
            now_text = _MEASURES[kind].format(median(sizes))
            return FieldDrift(name, now_text, f"{sketch.quantile(0.5):g}")
    return None


_MEASURES = {
    "number": "is about {:g}",
    "text": "has about {:g} characters",
    "list": "has about {:g} entries",
}


def _is_identifier(known: FieldProfile, sketch: Sketch) -> bool:
    """Return whether it is an id of each record, which grows from run to run."""
    fewest, _ = known.extremes.get("distinct", (0.0, 0.0))
    return fewest == 1.0 and all(float(value).is_integer() for value in sketch.values)


def _is_shifted(name: str, sketch: Sketch, ends: tuple[float, float], values: list[float]) -> bool:
    # Prices differ by factors, not by amounts; a score has a fixed range.
    is_factor = name != SCORE and sketch.low > 0 and min(values) > 0
    scaled: Callable[[float], float] = log if is_factor else float
    low, high = scaled(sketch.quantile(0.05)), scaled(sketch.quantile(0.95))
    least = log(1.5) if is_factor else max(1.0, abs(sketch.quantile(0.5)) / 10)
    margin = max((high - low) / 4, least)
    middle = scaled(median(values))
    if middle < scaled(ends[0]) - margin:
        return _share_below(values, sketch.quantile(0.05)) >= _MIN_OUTSIDE
    is_higher = middle > scaled(ends[1]) + margin and name != SCORE
    return is_higher and _share_below(values, sketch.quantile(0.95)) <= 1 - _MIN_OUTSIDE


def _is_resized(
    sketch: Sketch, ends: tuple[float, float], sizes: list[float], *, is_history: bool
) -> bool:
    factor = 2 if is_history else 4  # the beginning of a run is less representative
    middle = median(sizes)
    if ends[0] >= _MIN_LENGTH and middle < ends[0] / factor:
        return _share_below(sizes, sketch.quantile(0.05)) >= _MIN_OUTSIDE
    is_larger = middle > 2 * factor * ends[1] + _MIN_LENGTH
    return is_larger and _share_below(sizes, sketch.high) <= 1 - _MIN_OUTSIDE


def _share_below(values: Sequence[float], limit: float) -> float:
    return sum(value < limit for value in values) / len(values)


def _find_invalid(baseline: Profile, recent: BlockTally) -> list[FieldDrift]:
    before_all, now_all = baseline.records + baseline.invalid, recent.valid + recent.invalid
    if not before_all or not now_all:
        return []
    before, now = baseline.records / before_all, recent.valid / now_all
    # A field that the failures name is reported under its own name.
    known = (one for name, one in recent.fields.items() if name in baseline.fields)
    named = max((one.mentions for one in known), default=0)
    if before - now < _MIN_CHANGE or named > recent.invalid / 2:
        return []
    if chance_of_fewer(baseline.records, before_all, recent.valid, now_all) > _MAX_P:
        return []
    return [FieldDrift(VALID, f"is {now:.0%}", f"{before:.0%}")]


# ---------------- The detector of a running job

_MIN_BASELINE = 2 * BLOCK  # records
_WINDOW = 2 * BLOCK  # records that are compared, after every block
_MIN_RECORDS = 12  # in which a vanished steady field shows
_STEADY = 0.7  # share of records that have such a field; others may be missing 12 times by chance
_MAX_SITES = 100  # checked while a job runs; its end covers all of them
_WARNING_P = 0.01  # highest probability of chance for a warning
_MIN_ITEMS = 20  # of a run; in smaller ones half may be gone any day
_MIN_EMPTY = 3  # records; an empty column of fewer means nothing


class DriftDetector:
    """Checks records as they come, by site and kind; reports each field once.

    The last records are compared with earlier sound runs; without those, with the earlier part of
    this run.
    """

    def __init__(self, history: Profile | None = None, noticed: Iterable[str] = ()) -> None:
        is_enough = history is not None and history.records >= _MIN_BASELINE
        self._history = history if is_enough else None
        self._noticed = set(noticed)
        self._kinds = RecordKinds()
        self._sites: dict[tuple[str, int], _SiteDetector] = {}

    def add(self, shape: Shape, place: int) -> list[FieldDrift]:
        """Add the next record, the `place`-th item of the run; return what has drifted."""
        key = (shape.site, self._kinds.of(shape))
        if key not in self._sites:
            if len(self._sites) >= _MAX_SITES:
                return []
            self._sites[key] = _SiteDetector(self._history, self._noticed)
        return self._sites[key].add(shape, place)


class _SiteDetector:
    """The detector of one site and kind; `noticed` is shared with the others."""

    def __init__(self, history: Profile | None, noticed: set[str]) -> None:
        self._is_history = history is not None
        self._baseline = history or Profile()
        self._steady = self._baseline.steady(_STEADY)
        self._noticed = noticed
        self._last: deque[bytes] = deque(maxlen=_WINDOW)
        self._blocks: deque[bytes] = deque(maxlen=_WINDOW // BLOCK)
        self._count = 0

    def add(self, shape: Shape, place: int) -> list[FieldDrift]:
        self._count += 1
        self._last.append(shape.pack())
        found: list[FieldDrift] = []
        if self._may_have_drifted(shape):
            found += self._compare(tally_block(self._last_shapes(_MIN_RECORDS)), place)
        if self._count % BLOCK == 0:
            if not self._is_history and len(self._blocks) == self._blocks.maxlen:
                # The block before the window becomes a part of the baseline.
                self._baseline.add(BlockTally.unpack(self._blocks[0]))
                self._steady = self._baseline.steady(_STEADY)
            recent = tally_block(self._last_shapes(BLOCK))
            self._blocks.append(recent.pack())
            for packed in list(self._blocks)[:-1]:
                recent.merge(BlockTally.unpack(packed))
            found += self._compare(recent, place)
        return found

    def _last_shapes(self, count: int) -> list[Shape]:
        return [Shape.unpack(one) for one in list(self._last)[-count:]]

    def _may_have_drifted(self, shape: Shape) -> bool:
        """Return whether a steady field is missing in a record, or of another kind."""
        if self._count < _MIN_RECORDS:
            return False
        if not shape.is_valid:
            return True
        cells = shape.cells
        return any(
            (cell := cells.get(name)) is None or cell.kind != kind
            for name, kind in self._steady.items()
            if name not in self._noticed
        )

    def _compare(self, recent: BlockTally, place: int) -> list[FieldDrift]:
        if self._baseline.records < _MIN_BASELINE:
            return []
        found = find_drift(self._baseline, recent, is_history=self._is_history)
        fresh = [one for one in found if one.field not in self._noticed]
        if not fresh:
            return []
        self._noticed.update(one.field for one in fresh)
        window = self._last_shapes(_WINDOW)
        return [replace(one, place=place, since=_first_key(one.field, window)) for one in fresh]


def _first_key(name: str, window: Sequence[Shape]) -> str:
    """Return the key since which a field is empty; else the first key of the window."""
    since = window[-1].key
    for shape in reversed(window):
        if shape.is_valid if name == VALID else shape.cells.get(name) is not None:
            break
        since = shape.key
    return since if since != window[-1].key else window[0].key


@dataclass(frozen=True, slots=True)
class RunAssessment:
    """The result of a whole run: its profile, drift, and warnings.

    `alike` are the warnings of suspiciously uniform records; `empty` are all fields that no record
    has, with or without a warning.
    """

    profile: Profile
    drift: tuple[FieldDrift, ...]
    warnings: tuple[str, ...]
    alike: tuple[str, ...]
    empty: tuple[str, ...]


def judge_run(
    shapes: Sequence[Shape],
    history: Profile | None,
    *,
    declared: Iterable[str] = (),
    known_empty: Collection[str] = (),
) -> RunAssessment:
    """Judge a run by all its records, in their order.

    Args:
        shapes: of the records, and of the items without one.
        history: earlier sound runs, merged.
        declared: fields that the source declares.
        known_empty: fields that were already empty in the last comparable run.
    """
    history = history or Profile()
    (profile, whole), detector = profile_run(shapes), DriftDetector(history)
    profile.quiet = {name for name in history.quiet if not profile.share(name)}
    drift: dict[str, FieldDrift] = {}
    for place, shape in enumerate(shapes, 1):
        drift.update({one.field: one for one in detector.add(shape, place)})
    for one in find_drift(history, whole, is_history=True):
        drift.setdefault(one.field, one)
    if len(drift) > 1:
        drift.pop(VALID, None)
        drift.pop(SCORE, None)
    alike = [] if ALIKE in history.quiet else find_uniformity(shapes)
    empty = [name for name in _empty_columns(profile, history, declared) if name not in drift]
    warnings = [
        *alike,
        *(
            f"{name} is empty in all {profile.records} records"
            for name in empty
            if name not in known_empty
        ),
        *_new_fields(profile, history),
    ]
    return RunAssessment(
        profile, tuple(drift.values()), tuple(warnings), tuple(alike), tuple(empty)
    )


def far_fewer(found: int, fewest: int) -> FieldDrift | None:
    """Return drift when a run finds less than half of the smallest earlier one."""
    if fewest < _MIN_ITEMS or 2 * found >= fewest:
        return None
    return FieldDrift(ITEMS, f"is {found}", f"{fewest} or more")


def _empty_columns(profile: Profile, history: Profile, declared: Iterable[str]) -> list[str]:
    """Return the columns that are empty in all records, unless that is usual."""
    if profile.records < _MIN_EMPTY:
        return []
    earlier = {name: one.filled for name, one in history.fields.items() if one.filled}
    # A word that only failure reasons mention may not be a field.
    present = [name for name, one in profile.fields.items() if not one.mentions]

    def is_unusual(name: str) -> bool:
        chance = chance_of_fewer(earlier[name], history.seen(name), 0, profile.seen(name))
        return chance <= _WARNING_P

    return [
        name
        for name in dict.fromkeys([*present, *declared, *earlier])
        if not profile.share(name) and "." not in name and name not in profile.quiet
        if name not in earlier or is_unusual(name)
    ]


def _new_fields(profile: Profile, history: Profile) -> list[str]:
    """Return warnings for fields that were never filled before."""
    if history.records < _MIN_BASELINE or profile.records < _MIN_RECORDS:
        return []
    return [
        f"{name} is present in {profile.share(name):.0%} of the records (before: in none)"
        for name in profile.fields
        if "." not in name and profile.share(name) > 1 / 2 and not history.share(name)
        if name not in history.unknown
    ]
