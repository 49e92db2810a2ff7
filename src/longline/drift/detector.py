"""Detect drift against a baseline, while a job runs and over the whole run."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    chance_of_more,
    merge_tallies,
    profile_of,
    share_above,
    share_below,
    tally_block,
)

# ---------------- Warn of suspiciously uniform records, which a wrong selector or wrong item

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
    if len(valid) < _MIN_UNIFORM:
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
    named = {name: columns[name] for name in (*_TITLES, *_OTHER_TITLES) if name in columns}
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


# ---------------- Drift of a block or a run against a profile: large, new and unlikely changes

VALID = "@valid"
"""The share of items that became records, reported like a field."""
ITEMS = "@items"
"""The number of items of a run, reported like a field."""
MAX_P = 1e-7
"""Highest probability of chance that counts as drift, for thousands of checks in a run."""
_MIN_CHANGE = 0.3  # share of the records; smaller changes are normal
_MARGIN = 0.15  # beyond the extremes of the baseline
_MIN_OUTSIDE = 0.6  # share of values outside the usual range
_MIN_KINDS = 8
_MIN_SIZES = 24
_MIN_EQUAL = 30
_MAX_SKIPPED = 20_000  # records by which other processes may be ahead in the same list
_MIN_LENGTH = 12  # characters or entries; shorter values cannot collapse


_NAMES = {
    VALID: "the share of items that are valid",
    ITEMS: "the number of items found",
    SCORE: "the quality score",
}


@dataclass(frozen=True, slots=True)
class FieldDrift:
    """A field that has drifted; `now` and `before` are parts of a sentence."""

    field: str
    now: str
    before: str

    def __str__(self) -> str:
        return f"{_NAMES.get(self.field, self.field)} {self.now}, {self.before} before"


def find_drift(
    baseline: Profile, recent: BlockTally, *, is_history: bool, max_p: float = MAX_P
) -> list[FieldDrift]:
    """Return the fields that differ, each once.

    Args:
        baseline: the usual values.
        recent: a few consecutive records, or a whole run.
        is_history: the baseline is of whole runs, not of the beginning of this one. In a list that
            is sorted by price, only whole runs show the range of prices.
        max_p: highest probability of chance that counts as drift.
    """
    found = list(_drifted_fields(baseline, recent, is_history=is_history, max_p=max_p))
    named = {one.field for one in found}
    plain = [one for one in found if one.field != SCORE and not _parent_names(one.field) & named]
    return plain or found or list(_check_validity(baseline, recent, max_p))


def _drifted_fields(
    baseline: Profile, recent: BlockTally, *, is_history: bool, max_p: float
) -> Iterator[FieldDrift]:
    nothing = FieldTally()
    for name, known in baseline.fields.items():
        now = recent.fields.get(name, nothing)
        found = _check_filled(
            baseline, name, now, baseline.seen_in(recent, name), max_p
        ) or _check_kind(name, known, now, max_p)
        if found is None and now.filled >= _MIN_SIZES:
            found = _check_constant(name, known, now) or _check_size(
                name, known, now, is_history=is_history
            )
        if found is not None:
            yield found


def _parent_names(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts))}


def _check_filled(
    baseline: Profile, name: str, now: FieldTally, seen: int, max_p: float
) -> FieldDrift | None:
    known = baseline.fields[name]
    if not seen or not known.filled:
        return None
    before, share = baseline.share(name), now.filled / seen
    lowest, _ = known.extremes.get("filled", (before, before))
    if before - share < _MIN_CHANGE or share > max(lowest - _MARGIN, 0.0) or lowest == 0.0:
        return None
    if chance_of_fewer(known.filled, baseline.seen(name), now.filled, seen) > max_p:
        return None
    # A refused field had a value, which was wrong.
    is_refused = 2 * now.refused > seen - now.filled
    how = "valid" if is_refused else "filled"
    return FieldDrift(name, f"is {how} in {now.filled} of {seen} records", f"in {before:.0%}")


def _check_kind(name: str, known: FieldProfile, now: FieldTally, max_p: float) -> FieldDrift | None:
    if now.filled < _MIN_KINDS or not known.filled:
        return None
    kind, count = max(now.kinds.items(), key=lambda one: one[1])
    before, share = known.kinds.get(kind, 0), count / now.filled
    usual = before / known.filled
    _, highest = known.extremes.get(f"kind {kind}", (usual, usual))
    if share - usual < 2 * _MIN_CHANGE or share < highest + _MARGIN:
        return None
    if chance_of_more(before, known.filled, count, now.filled) > max_p:
        return None
    main = max(known.kinds, key=lambda one: known.kinds[one])
    return FieldDrift(name, f"is a {kind} in {count} of {now.filled} records", f"a {main}")


def _check_constant(name: str, known: FieldProfile, now: FieldTally) -> FieldDrift | None:
    # Where half of the values of every block differ, thirty equal ones are not chance.
    fewest, _ = known.extremes.get("distinct", (0.0, 0.0))
    if len(now.values) != 1 or now.filled < _MIN_EQUAL or fewest < 0.5:  # noqa: PLR2004  # half
        return None
    if name == SCORE or not now.sizes.keys() & {"text", "number"}:
        return None
    return FieldDrift(name, "is the same in all records", "different ones")


def _check_size(
    name: str, known: FieldProfile, now: FieldTally, *, is_history: bool
) -> FieldDrift | None:
    for kind, sizes in now.sizes.items():
        sketch, ends = known.sizes.get(kind), known.extremes.get(f"size {kind}")
        if sketch is None or ends is None or min(len(sizes), sketch.count) < _MIN_SIZES:
            continue
        if kind == "number" and not is_history:
            is_moved = _is_far_out(sketch, sizes, is_counting=_is_counting(known, sketch))
        elif kind == "number":
            is_moved = not _is_identifier(known, sketch) and _is_shifted(name, sketch, ends, sizes)
        else:
            is_moved = _is_resized(sketch, ends, sizes, is_history=is_history)
        if is_moved:
            before, middle = sketch.quantile(0.5), median(sizes)
            return FieldDrift(name, _MEASURES[kind].format(middle), f"{before:g}")
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


def _is_counting(known: FieldProfile, sketch: Sketch) -> bool:
    """Return whether it numbers the records with few gaps."""
    return _is_identifier(known, sketch) and sketch.high - sketch.low < 2 * sketch.count


def _is_far_out(sketch: Sketch, values: list[float], *, is_counting: bool) -> bool:
    span = 3 * max(sketch.high - sketch.low, abs(sketch.high), abs(sketch.low), 10.0)
    if is_counting:
        span = max(span, _MAX_SKIPPED)
    low, high = sketch.low - span, sketch.high + span
    return share_below(values, low) + share_above(values, high) >= _MIN_OUTSIDE


def _is_shifted(name: str, sketch: Sketch, ends: tuple[float, float], values: list[float]) -> bool:
    # Prices differ by factors, not by amounts; a score has a fixed range.
    is_factor = name != SCORE and sketch.low > 0 and min(values) > 0
    scaled: Callable[[float], float] = log if is_factor else float
    low, high = scaled(sketch.quantile(0.05)), scaled(sketch.quantile(0.95))
    least = log(1.5) if is_factor else max(1.0, abs(sketch.quantile(0.5)) / 10)
    margin = max((high - low) / 4, least)
    middle = scaled(median(values))
    if middle < scaled(ends[0]) - margin:
        return share_below(values, sketch.quantile(0.05)) >= _MIN_OUTSIDE
    is_higher = middle > scaled(ends[1]) + margin and name != SCORE
    return is_higher and share_above(values, sketch.quantile(0.95)) >= _MIN_OUTSIDE


def _is_resized(
    sketch: Sketch, ends: tuple[float, float], sizes: list[float], *, is_history: bool
) -> bool:
    factor = 2 if is_history else 4  # the beginning of a run is less representative
    middle = median(sizes)
    if ends[0] >= _MIN_LENGTH and middle < ends[0] / factor:
        return share_below(sizes, sketch.quantile(0.05)) >= _MIN_OUTSIDE
    is_larger = middle > 2 * factor * ends[1] + _MIN_LENGTH
    return is_larger and share_above(sizes, sketch.high) >= _MIN_OUTSIDE


def _check_validity(baseline: Profile, recent: BlockTally, max_p: float) -> Iterator[FieldDrift]:
    before_all, now_all = baseline.records + baseline.invalid, recent.valid + recent.invalid
    if not before_all or not now_all:
        return
    before, now = baseline.records / before_all, recent.valid / now_all
    # A field that the failures name is reported under its own name.
    known = (one for name, one in recent.fields.items() if name in baseline.fields)
    named = max((one.mentions for one in known), default=0)
    if before - now < _MIN_CHANGE or named > recent.invalid / 2:
        return
    if chance_of_fewer(baseline.records, before_all, recent.valid, now_all) <= max_p:
        yield FieldDrift(VALID, f"is {now:.0%}", f"{before:.0%}")


# ---------------- The detector of a running job

_MIN_BASELINE = 2 * BLOCK  # records
_STEP = 10  # records between two checks of the window
_WINDOW = 4  # steps in the window
_MIN_RECORDS = 12  # in which a vanished steady field shows
_STEADY = 0.7  # share of records that have such a field; others may be missing 12 times by chance
_MAX_SITES = 100  # checked while a job runs; its end covers all of them
_MAX_P_AT_END = 1e-5  # one check of each field, not thousands
_WARNING_P = 0.01  # highest probability of chance for a warning
_MIN_ITEMS = 20  # of a run; in smaller ones half may be gone any day
_MIN_EMPTY = 3  # records; an empty column of fewer means nothing


@dataclass(frozen=True, slots=True)
class DriftNotice:
    """A drifted field, the item of the run at which it was noticed, and the first key."""

    difference: FieldDrift
    place: int
    since: str

    @property
    def field(self) -> str:
        """The field that differs."""
        return self.difference.field

    def __str__(self) -> str:
        return f"{self.difference} (since {self.since})"


class DriftDetector:
    """Checks records as they come, by site and kind; reports each field once.

    The last records are compared with earlier sound runs; without those, with the earlier part of
    this run.
    """

    def __init__(self, history: Profile | None = None, noticed: Iterable[str] = ()) -> None:
        self._history = history
        self._noticed = set(noticed)
        self._kinds = RecordKinds()
        self._sites: dict[tuple[str, int], _SiteDetector] = {}

    def add(self, shape: Shape, place: int) -> list[DriftNotice]:
        """Add the next record, the `place`-th item of the run; return what has drifted."""
        place_of = (shape.site, self._kinds.of(shape))
        watch = self._sites.get(place_of)
        if watch is None:
            if len(self._sites) >= _MAX_SITES:
                return []
            watch = self._sites[place_of] = _SiteDetector(self._history, self._noticed)
        return watch.add(shape, place)


class _SiteDetector:
    """The detector of one site and kind; `noticed` is shared with the others."""

    def __init__(self, history: Profile | None, noticed: set[str]) -> None:
        self._is_history = history is not None and history.records >= _MIN_BASELINE
        self._baseline = history if history is not None and self._is_history else Profile()
        self._steady = self._baseline.steady(_STEADY)
        self._noticed = noticed
        self._last: deque[Shape] = deque(maxlen=_WINDOW * _STEP)
        self._window: deque[BlockTally] = deque()
        self._outgoing: list[BlockTally] = []
        self._count = 0

    def add(self, shape: Shape, place: int) -> list[DriftNotice]:
        self._count += 1
        self._last.append(shape)
        found: list[DriftNotice] = []
        if self._may_have_drifted(shape):
            found += self._compare(tally_block(list(self._last)[-_MIN_RECORDS:]), place)
        if self._count % _STEP == 0:
            self._window.append(tally_block(list(self._last)[-_STEP:]))
            self._shift_window()
            found += self._compare(merge_tallies(self._window), place)
        return found

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

    def _shift_window(self) -> None:
        """Move the oldest records of the window into the baseline of this run."""
        if len(self._window) <= _WINDOW:
            return
        oldest = self._window.popleft()
        if self._is_history:
            return
        self._outgoing.append(oldest)
        if len(self._outgoing) * _STEP < BLOCK:
            return
        self._baseline.add(merge_tallies(self._outgoing))
        self._outgoing.clear()
        if self._baseline.records >= _MIN_BASELINE:
            self._steady = self._baseline.steady(_STEADY)

    def _compare(self, recent: BlockTally, place: int) -> list[DriftNotice]:
        if self._baseline.records < _MIN_BASELINE:
            return []
        found = find_drift(self._baseline, recent, is_history=self._is_history)
        fresh = [one for one in found if one.field not in self._noticed]
        self._noticed.update(one.field for one in fresh)
        return [DriftNotice(one, place, _first_key(one.field, self._last)) for one in fresh]


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The result of a whole run: its profile, drift, and warnings.

    `alike` are the warnings of suspiciously uniform records.
    """

    profile: Profile
    drift: tuple[FieldDrift | DriftNotice, ...] = ()
    warnings: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    """All fields that no record has, with or without a warning."""

    @property
    def is_sound(self) -> bool:
        """Whether later runs may be compared with it."""
        return not self.drift

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that have drifted."""
        return tuple(one.field for one in self.drift)


def judge_run(
    shapes: Sequence[Shape],
    history: Profile | None,
    *,
    declared: Iterable[str] = (),
    runs: int = 0,
    known_empty: Collection[str] = (),
) -> RunVerdict:
    """Judge a run by all its records, in their order.

    Args:
        shapes: of the records, and of the items without one.
        history: earlier sound runs, merged.
        declared: fields that the source declares.
        runs: the number of earlier runs.
        known_empty: fields that were already empty in the last comparable run.
    """
    profile = profile_of(shapes)
    watch = DriftDetector(history)
    drift: dict[str, FieldDrift | DriftNotice] = {}
    for place, shape in enumerate(shapes, 1):
        drift.update({one.field: one for one in watch.add(shape, place)})
    if history is not None:
        profile.quiet = {name for name in history.quiet if not profile.share(name)}
    if history is not None and history.records:
        for one in _compare_run(history, profile, shapes, runs):
            drift.setdefault(one.field, one)
    if len(drift) > 1:
        drift.pop(VALID, None)
        drift.pop(SCORE, None)
    is_accepted = history is not None and ALIKE in history.quiet
    same = [] if is_accepted else find_uniformity(shapes)
    empty = _empty_columns(profile, history, declared, drift)
    fresh = [
        f"{name} is empty in all {profile.records} records"
        for name in empty
        if name not in known_empty
    ]
    warnings = (*same, *fresh, *_new_fields(profile, history))
    return RunVerdict(profile, tuple(drift.values()), warnings, tuple(same), tuple(empty))


def far_fewer(found: int, fewest: int) -> FieldDrift | None:
    """Return drift when a run finds less than half of the smallest earlier one."""
    if fewest < _MIN_ITEMS or 2 * found >= fewest:
        return None
    return FieldDrift(ITEMS, f"is {found}", f"{fewest} or more")


def _compare_run(
    history: Profile, profile: Profile, shapes: Sequence[Shape], runs: int
) -> list[FieldDrift]:
    """Compare the whole run with earlier ones."""
    whole = tally_block(shapes)
    found = find_drift(history, whole, is_history=True, max_p=_MAX_P_AT_END)
    # A run of the usual size has the usual records, so that a whole column cannot be empty.
    is_whole = profile.records * 2 * max(runs, 1) >= history.records
    named = {one.field for one in found}
    return found + [
        FieldDrift(name, "is empty in all records", f"filled in {history.share(name):.0%}")
        for name in history.fields
        if "." not in name and name not in named and _is_emptied(history, whole, name)
        if is_whole or history.fields[name].extremes.get("filled", (0.0, 0.0))[0] > 0
    ]


def _is_emptied(history: Profile, whole: BlockTally, name: str) -> bool:
    now = whole.fields.get(name, FieldTally())
    filled, seen = history.fields[name].filled, history.seen_in(whole, name)
    if now.filled or not filled or not seen:
        return False
    return chance_of_fewer(filled, history.seen(name), 0, seen) <= _MAX_P_AT_END


def _empty_columns(
    profile: Profile, history: Profile | None, declared: Iterable[str], drift: Iterable[str]
) -> list[str]:
    """Return the columns that are empty in all records, unless that is usual."""
    if profile.records < _MIN_EMPTY:
        return []
    usual = history or Profile()
    earlier = {name for name, one in usual.fields.items() if one.filled}
    names = dict.fromkeys([*profile.fields, *declared, *earlier])
    return [
        name
        for name in names
        if not profile.share(name) and "." not in name and name not in {*drift, *profile.quiet}
        if name not in earlier or _is_unlikely_empty(usual, profile, name)
        # A word that only failure reasons mention may not be a field.
        if name in declared or name in earlier or not profile.fields[name].mentions
    ]


def _is_unlikely_empty(usual: Profile, profile: Profile, name: str) -> bool:
    known = usual.fields[name].filled
    return chance_of_fewer(known, usual.seen(name), 0, profile.seen(name)) <= _WARNING_P


def _new_fields(profile: Profile, history: Profile | None) -> list[str]:
    """Return warnings for fields that were never filled before."""
    if history is None or history.records < _MIN_BASELINE or profile.records < _MIN_RECORDS:
        return []
    return [
        f"{name} is filled in {profile.share(name):.0%} of the records, in none before"
        for name in profile.fields
        if "." not in name and profile.share(name) > 1 / 2 and not history.share(name)
        if name not in history.unknown
    ]


def _first_key(name: str, recent: deque[Shape]) -> str:
    """Return the key since which a field is empty; else the first key of the window."""
    since = recent[-1].key
    for shape in reversed(recent):
        if shape.is_valid if name == VALID else shape.cells.get(name) is not None:
            break
        since = shape.key
    return since if since != recent[-1].key else recent[0].key
