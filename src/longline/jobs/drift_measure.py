"""Which earlier runs a run is measured by: the same question, as much ground, the same fields."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from pydantic import BaseModel

from longline.model import Job
from longline.monitoring.profiles import Profile
from longline.sources.base import Source
from longline.stores.profiles import KeptProfile
from longline.stores.store import Store

_LIST = "list "  # begins the scope of a job that was given its items
_RUNS, _RECORDS = 5, 200  # that are the measure of a run, at least, if there are so many


@dataclass(frozen=True, slots=True)
class Terms:
    """What decides by which earlier runs a run is measured.

    `scope` stands for its options and parameters, and is empty for a run without any;
    `definitions` stand for how a manifest reads each field. A run that `is_cut` has left items
    out: a limit, a budget, a list that could not be read to its end.
    """

    scope: str = ""
    definitions: Mapping[str, str] = field(default_factory=dict)
    items: int = 0
    is_cut: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it as it is kept beside the profile of a run."""
        return {
            "scope": self.scope,
            "definitions": dict(self.definitions),
            "items": self.items,
            "is_cut": self.is_cut,
        }

    @classmethod
    def from_json(cls, profile: Mapping[str, Any]) -> Terms:
        """Return what `as_json` has written; of an older profile, what is not known is empty."""
        return cls(
            profile.get("scope", ""),
            profile.get("definitions", {}),
            profile.get("items", 0),
            bool(profile.get("is_cut")),
        )

    def fits(self, earlier: Mapping[str, Any]) -> bool:
        """Say whether an earlier run has covered the ground of this one: all of it, or as much."""
        return not earlier.get("is_cut") or earlier.get("items", 0) >= self.items


@dataclass(frozen=True, slots=True)
class Measure:
    """Earlier sound runs, merged; `fewest` is how many items the smallest of them has found."""

    profile: Profile | None = None
    jobs: tuple[str, ...] = ()
    fewest: int = 0


async def terms_before(store: Store, source: Source, job: Job) -> Terms:
    """Return the terms of a run that begins: without a limit, it may find any number of items."""
    after = await terms_after(store, source, job)
    if after.scope.startswith(_LIST):
        return after
    return replace(after, items=job.settings.get("limit") or sys.maxsize)


async def terms_after(store: Store, source: Source, job: Job) -> Terms:
    """Return the terms of a run that ends."""
    found, left_out = await store.profiles.extent(job.id)
    limit = job.settings.get("limit")
    is_limited = limit is not None and found >= limit
    is_list = await _is_list(store, job)
    is_short = job.shortfall is not None or bool((await store.jobs.caveats(job.id)).cuts)
    scope = _scope(source, job)
    return Terms(
        f"{_LIST}{scope}" if is_list else scope,
        _definitions(source),
        found - left_out,
        is_cut=is_limited or is_list or bool(left_out) or is_short,
    )


async def measure_for(store: Store, source: str, job: str, terms: Terms) -> Measure:
    """Return what a job of these terms is measured by."""
    found = await store.profiles.measure(source, scope=terms.scope, but=job, fits=terms.fits)
    same = [one for one in found if not _changed(one, terms)]
    return together(same or found, terms)


async def empty_before(
    store: Store, source: str, job: str, terms: Terms, records: int
) -> frozenset[str]:
    """Return the fields that were empty in the last run of about as many records, sound or not.

    A field that the manifest reads in another way since then is not among them.
    """
    for one in await store.profiles.recent(source, scope=terms.scope, but=job):
        if 2 * one.profile["records"] >= records:
            return frozenset(one.profile.get("empty", ())) - _changed(one, terms)
    return frozenset()


def together(found: Iterable[KeptProfile], terms: Terms) -> Measure:
    """Return the newest few of these profiles as one, without the fields that are read anew."""
    kept = _enough(found)
    if not kept:
        return Measure()
    whole = Profile()
    for one in kept:
        whole.merge(Profile.from_json(one.profile))
    whole.forget({name for one in kept for name in _changed(one, terms)})
    uncut = [one for one in kept if not one.profile.get("is_cut")] or kept
    fewest = min(one.profile.get("items", 0) for one in uncut)
    return Measure(whole, tuple(one.job for one in kept), fewest)


def _enough(kept: Iterable[KeptProfile]) -> list[KeptProfile]:
    """Return the newest few, and more of them if they are of single items or little tries."""
    taken: list[KeptProfile] = []
    records = 0
    for one in kept:
        if len(taken) >= _RUNS and records >= _RECORDS:
            break
        taken.append(one)
        records += one.profile["records"]
    return taken


def _changed(earlier: KeptProfile, terms: Terms) -> set[str]:
    """Return the fields that the manifest of an earlier run reads in another way, or not at all."""
    before = earlier.profile.get("definitions")
    if before is None:
        return set()
    now = terms.definitions
    return {name for name in {*before, *now} if before.get(name) != now.get(name)}


def _scope(source: Source, job: Job) -> str:
    # As the source understands them: 50 from a file and "50" from a shell are the same.
    options = source.options.model_dump(mode="json", exclude_defaults=True, fallback=str)
    params = job.settings.get("params") or {}
    return _hash([options, params]) if options or params else ""


def _definitions(source: Source) -> dict[str, str]:
    manifest: Any = getattr(source, "manifest", None)
    endpoints: Mapping[str, Any] = getattr(manifest, "endpoints", None) or {}
    found: dict[str, list[Any]] = {}
    for part in (manifest, getattr(manifest, "items", None), *endpoints.values()):
        fields = getattr(part, "fields", None)
        for name, one in fields.items() if isinstance(fields, Mapping) else ():
            found.setdefault(name, []).append(_plain(one))
    return {name: _hash(several) for name, several in found.items()}


def _plain(one: Any) -> Any:
    return one.model_dump(mode="json", fallback=str) if isinstance(one, BaseModel) else one


async def _is_list(store: Store, job: Job) -> bool:
    """Say whether a job was given its items: then all was there before it began."""
    known = await store.journal.events(job.id, kind="job.discovered")
    started = await store.journal.events(job.id, kind="job.started")
    return bool(known and started and known[0].id < started[0].id)


def _hash(value: Any) -> str:
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.sha256(text).hexdigest()[:16]
