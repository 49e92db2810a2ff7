"""Whether a source still looks as it did: while it runs, and over the whole run at its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from longline.monitoring.comparing import ITEMS, VALID, Difference, differences
from longline.monitoring.evidence import chance_of_fewer
from longline.monitoring.likeness import ALIKE, alike
from longline.monitoring.profiles import (
    BLOCK,
    Profile,
    Tallies,
    Tally,
    profile_of,
    tally,
    together,
)
from longline.monitoring.shapes import SCORE, Kinds, Shape

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
class Notice:
    """A difference that was noticed: at which item of the run, and since which key."""

    difference: Difference
    place: int
    since: str

    @property
    def field(self) -> str:
        """The field that differs."""
        return self.difference.field

    def __str__(self) -> str:
        return f"{self.difference} (since {self.since})"


class Watch:
    """Looks at records as they come, each site and kind by itself; reports each field once.

    The last records are held against earlier sound runs; without those, against the earlier part
    of this run.
    """

    def __init__(self, history: Profile | None = None, noticed: Iterable[str] = ()) -> None:
        self._history = history
        self._noticed = set(noticed)
        self._kinds = Kinds()
        self._sites: dict[tuple[str, int], _SiteWatch] = {}

    def add(self, shape: Shape, place: int) -> list[Notice]:
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

    def add(self, shape: Shape, place: int) -> list[Notice]:
        self._count += 1
        self._last.append(shape)
        found: list[Notice] = []
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

    def _compare(self, recent: Tallies, place: int) -> list[Notice]:
        if self._usual.records < _ENOUGH:
            return []
        found = differences(self._usual, recent, is_history=self._is_history)
        fresh = [one for one in found if one.field not in self._noticed]
        self._noticed.update(one.field for one in fresh)
        return [Notice(one, place, _since(one.field, self._last)) for one in fresh]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a whole run shows: its profile, what has drifted, and what is odd but no proof.

    `alike` are those of the warnings that say that the records are suspiciously alike.
    """

    profile: Profile
    drift: tuple[Difference | Notice, ...] = ()
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


def judge(
    shapes: Sequence[Shape],
    history: Profile | None,
    *,
    declared: Iterable[str] = (),
    runs: int = 0,
    known_empty: Collection[str] = (),
) -> Judgement:
    """Judge a run by all its records, in the order in which they came.

    Args:
        shapes: of the records, and of the items that became none.
        history: earlier sound runs, merged.
        declared: fields that the source says its records have.
        runs: how many earlier runs those are.
        known_empty: fields that were empty in the last comparable run, too: nothing new.
    """
    profile = profile_of(shapes)
    watch = Watch(history)
    drift: dict[str, Difference | Notice] = {}
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
    return Judgement(profile, tuple(drift.values()), warnings, tuple(same), tuple(empty))


def far_fewer(found: int, fewest: int) -> Difference | None:
    """Return what a whole run says that finds not half of what the smallest before it has found."""
    if fewest < _FEWEST_ITEMS or 2 * found >= fewest:
        return None
    return Difference(ITEMS, f"is {found}", f"{fewest} or more")


def _against(
    history: Profile, profile: Profile, shapes: Sequence[Shape], runs: int
) -> list[Difference]:
    """Hold the whole run against earlier ones."""
    whole = tally(shapes)
    found = differences(history, whole, is_history=True, doubt=_DOUBT_AT_END)
    # A run of the usual size covers the usual ground: there, no block of it may be as empty.
    is_whole = profile.records * 2 * max(runs, 1) >= history.records
    named = {one.field for one in found}
    return found + [
        Difference(name, "is empty in all records", f"filled in {history.share(name):.0%}")
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
