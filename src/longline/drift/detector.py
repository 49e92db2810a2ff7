"""Whether a source still looks as it did: while it runs, and over the whole run at its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from statistics import median

from longline.drift.profiles import (
    BLOCK,
    SCORE,
    FieldProfile,
    Kinds,
    Profile,
    Shape,
    Sketch,
    Tallies,
    Tally,
    chance_of_fewer,
    chance_of_more,
    profile_of,
    share_above,
    share_below,
    tally,
    together,
)
from longline.drift.uniformity import ALIKE, alike

# ---------------- What differs between records of now and a profile: only what is large, new and

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
class FieldDrift:
    """A field that is not what it was: `now` and `before` in words that make a sentence."""

    field: str
    now: str
    before: str

    def __str__(self) -> str:
        return f"{_NAMES.get(self.field, self.field)} {self.now}, {self.before} before"


def differences(
    baseline: Profile, recent: Tallies, *, is_history: bool, doubt: float = DOUBT
) -> list[FieldDrift]:
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
) -> Iterator[FieldDrift]:
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


def _filled(baseline: Profile, name: str, now: Tally, seen: int, doubt: float) -> FieldDrift | None:
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
    return FieldDrift(name, f"is {how} in {now.filled} of {seen} records", f"in {before:.0%}")


def _kind(name: str, known: FieldProfile, now: Tally, doubt: float) -> FieldDrift | None:
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
    return FieldDrift(name, f"is a {kind} in {count} of {now.filled} records", f"a {main}")


def _equal(name: str, known: FieldProfile, now: Tally) -> FieldDrift | None:
    # Where half of the values of every block differ, thirty equal ones in a row are no accident.
    fewest, _ = known.extremes.get("distinct", (0.0, 0.0))
    if len(now.values) != 1 or now.filled < _FEWEST_EQUAL or fewest < 0.5:  # noqa: PLR2004  # half
        return None
    if name == SCORE or not now.sizes.keys() & {"text", "number"}:
        return None
    return FieldDrift(name, "is the same in all records", "different ones")


def _size(name: str, known: FieldProfile, now: Tally, *, is_history: bool) -> FieldDrift | None:
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
            return FieldDrift(name, _MEASURES[kind].format(middle), f"{before:g}")
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


def _of_validity(baseline: Profile, recent: Tallies, doubt: float) -> Iterator[FieldDrift]:
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
        yield FieldDrift(VALID, f"is {now:.0%}", f"{before:.0%}")


_ENOUGH = 2 * BLOCK  # records that a baseline is made of, at least
_LOOK = 10  # records between two looks at the window
_WINDOW = 4  # times as many records are looked at
_FEW = 12  # records in which it shows that a steady field has vanished
_STEADY = 0.7  # of the records have such a field; others may be missing twelve times by chance
_MOST_SITES = 100  # that are watched; a whole run is judged by all of them
_DOUBT_AT_END = 1e-5  # one look at each field, not thousands
_ODD = 0.01  # as likely as what is worth a warning, if no more
_FEWEST_ITEMS = 20  # of fewer, half may be gone any day
_FEWEST_EMPTY = 3  # records; of fewer it says nothing that a column is empty


@dataclass(frozen=True, slots=True)
class DriftNotice:
    """A difference that was noticed: at which item of the run, and since which key."""

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
    """Looks at records as they come, each site and kind by itself; reports each field once.

    The last records are held against earlier sound runs; without those, against the earlier part
    of this run.
    """

    def __init__(self, history: Profile | None = None, noticed: Iterable[str] = ()) -> None:
        self._history = history
        self._noticed = set(noticed)
        self._kinds = Kinds()
        self._sites: dict[tuple[str, int], _SiteWatch] = {}

    def add(self, shape: Shape, place: int) -> list[DriftNotice]:
        """Take in the next record, the `place`-th item of the run; return what is noticed."""
        place_of = (shape.site, self._kinds.of(shape))
        watch = self._sites.get(place_of)
        if watch is None:
            if len(self._sites) >= _MOST_SITES:
                return []
            watch = self._sites[place_of] = _SiteWatch(self._history, self._noticed)
        return watch.add(shape, place)


class _SiteWatch:
    """The watch over one site; `noticed` is shared with those over the others."""

    def __init__(self, history: Profile | None, noticed: set[str]) -> None:
        self._is_history = history is not None and history.records >= _ENOUGH
        self._usual = history if history is not None and self._is_history else Profile()
        self._steady = self._usual.steady(_STEADY)
        self._noticed = noticed
        self._last: deque[Shape] = deque(maxlen=_WINDOW * _LOOK)
        self._window: deque[Tallies] = deque()
        self._left: list[Tallies] = []
        self._count = 0

    def add(self, shape: Shape, place: int) -> list[DriftNotice]:
        self._count += 1
        self._last.append(shape)
        found: list[DriftNotice] = []
        if self._is_odd(shape):
            found += self._compare(tally(list(self._last)[-_FEW:]), place)
        if self._count % _LOOK == 0:
            self._window.append(tally(list(self._last)[-_LOOK:]))
            self._make_room()
            found += self._compare(together(self._window), place)
        return found

    def _is_odd(self, shape: Shape) -> bool:
        """Say whether something steady has vanished, or is of another kind, as far as one shows."""
        if self._count < _FEW:
            return False
        if not shape.is_valid:
            return True
        cells = shape.cells
        return any(
            (cell := cells.get(name)) is None or cell.kind != kind
            for name, kind in self._steady.items()
            if name not in self._noticed
        )

    def _make_room(self) -> None:
        """Let the oldest records leave the window; they are what is usual in this run."""
        if len(self._window) <= _WINDOW:
            return
        oldest = self._window.popleft()
        if self._is_history:
            return
        self._left.append(oldest)
        if len(self._left) * _LOOK < BLOCK:
            return
        self._usual.add(together(self._left))
        self._left.clear()
        if self._usual.records >= _ENOUGH:
            self._steady = self._usual.steady(_STEADY)

    def _compare(self, recent: Tallies, place: int) -> list[DriftNotice]:
        if self._usual.records < _ENOUGH:
            return []
        found = differences(self._usual, recent, is_history=self._is_history)
        fresh = [one for one in found if one.field not in self._noticed]
        self._noticed.update(one.field for one in fresh)
        return [DriftNotice(one, place, _since(one.field, self._last)) for one in fresh]


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """What a whole run shows: its profile, what has drifted, and what is odd but no proof.

    `alike` are those of the warnings that say that the records are suspiciously alike.
    """

    profile: Profile
    drift: tuple[FieldDrift | DriftNotice, ...] = ()
    warnings: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    """All fields that no record has, warned of or not."""

    @property
    def is_sound(self) -> bool:
        """Whether later runs may be measured by it."""
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
    """Judge a run by all its records, in the order in which they came.

    Args:
        shapes: of the records, and of the items that became none.
        history: earlier sound runs, merged.
        declared: fields that the source says its records have.
        runs: how many earlier runs those are.
        known_empty: fields that were empty in the last comparable run, too: nothing new.
    """
    profile = profile_of(shapes)
    watch = DriftDetector(history)
    drift: dict[str, FieldDrift | DriftNotice] = {}
    for place, shape in enumerate(shapes, 1):
        drift.update({one.field: one for one in watch.add(shape, place)})
    if history is not None:
        profile.quiet = {name for name in history.quiet if not profile.share(name)}
    if history is not None and history.records:
        for one in _against(history, profile, shapes, runs):
            drift.setdefault(one.field, one)
    if len(drift) > 1:
        drift.pop(VALID, None)
        drift.pop(SCORE, None)
    is_accepted = history is not None and ALIKE in history.quiet
    same = [] if is_accepted else alike(shapes)
    empty = _empty(profile, history, declared, drift)
    fresh = [
        f"{name} is empty in all {profile.records} records"
        for name in empty
        if name not in known_empty
    ]
    warnings = (*same, *fresh, *_risen(profile, history))
    return RunVerdict(profile, tuple(drift.values()), warnings, tuple(same), tuple(empty))


def far_fewer(found: int, fewest: int) -> FieldDrift | None:
    """Return what a whole run says that finds not half of what the smallest before it has found."""
    if fewest < _FEWEST_ITEMS or 2 * found >= fewest:
        return None
    return FieldDrift(ITEMS, f"is {found}", f"{fewest} or more")


def _against(
    history: Profile, profile: Profile, shapes: Sequence[Shape], runs: int
) -> list[FieldDrift]:
    """Hold the whole run against earlier ones."""
    whole = tally(shapes)
    found = differences(history, whole, is_history=True, doubt=_DOUBT_AT_END)
    # A run of the usual size covers the usual ground: there, no block of it may be as empty.
    is_whole = profile.records * 2 * max(runs, 1) >= history.records
    named = {one.field for one in found}
    return found + [
        FieldDrift(name, "is empty in all records", f"filled in {history.share(name):.0%}")
        for name in history.fields
        if "." not in name and name not in named and _is_emptied(history, whole, name)
        if is_whole or history.fields[name].extremes.get("filled", (0.0, 0.0))[0] > 0
    ]


def _is_emptied(history: Profile, whole: Tallies, name: str) -> bool:
    now = whole.fields.get(name, Tally())
    filled, seen = history.fields[name].filled, history.seen_in(whole, name)
    if now.filled or not filled or not seen:
        return False
    return chance_of_fewer(filled, history.seen(name), 0, seen) <= _DOUBT_AT_END


def _empty(
    profile: Profile, history: Profile | None, declared: Iterable[str], drift: Iterable[str]
) -> list[str]:
    """Return the columns that are empty from top to bottom, unless that is usual for them."""
    if profile.records < _FEWEST_EMPTY:
        return []
    usual = history or Profile()
    earlier = {name for name, one in usual.fields.items() if one.filled}
    names = dict.fromkeys([*profile.fields, *declared, *earlier])
    return [
        name
        for name in names
        if not profile.share(name) and "." not in name and name not in {*drift, *profile.quiet}
        if name not in earlier or _is_odd_to_miss(usual, profile, name)
        # A word that only reasons of failures have may not be a field at all.
        if name in declared or name in earlier or not profile.fields[name].mentions
    ]


def _is_odd_to_miss(usual: Profile, profile: Profile, name: str) -> bool:
    known = usual.fields[name].filled
    return chance_of_fewer(known, usual.seen(name), 0, profile.seen(name)) <= _ODD


def _risen(profile: Profile, history: Profile | None) -> list[str]:
    """Return the fields that were never filled before; no record is worse for them."""
    if history is None or history.records < _ENOUGH or profile.records < _FEW:
        return []
    return [
        f"{name} is filled in {profile.share(name):.0%} of the records, in none before"
        for name in profile.fields
        if "." not in name and profile.share(name) > 1 / 2 and not history.share(name)
        if name not in history.unknown
    ]


def _since(name: str, recent: deque[Shape]) -> str:
    """Return the key from which on a field is empty; else that of the first record looked at."""
    since = recent[-1].key
    for shape in reversed(recent):
        if shape.is_valid if name == VALID else shape.cells.get(name) is not None:
            break
        since = shape.key
    return since if since != recent[-1].key else recent[0].key
