"""How much of its site a run has seen: what it left out, as far as that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longline.model import OPEN_STATES, Job
from longline.stores.store import Store

_SCOPE = {"set": "--set", "params": "--param"}
_PAGES = "most_pages"  # in notes of jobs that ran before cuts were events of their own
# What a manifest says of pace and words, and of what a record keeps once it was found. All else,
# what later versions add included, may decide which items are found.
_ASIDE = {
    *("about", "burst", "cache", "expects", "fields", "locale", "may_be_empty", "name"),
    *("pipeline", "rate", "silence", "timeout", "usually_empty", "version", "volatile"),
}
_NAMES = {"parameters", "endpoints"}  # what is below has names of its own


@dataclass(frozen=True, slots=True)
class Coverage:
    """`gaps` are reasons why a run cannot have found everything; `notes` are worth knowing."""

    gaps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def coverage_of(store: Store, job: Job) -> Coverage:
    """Return what a run left out."""
    gaps = _gaps(job)
    limit = job.settings.get("limit")
    if limit is not None and sum((await store.queue.counts(job.id)).values()) >= limit:
        gaps.append(f"was limited to {limit} items")
    if await _was_given_its_items(store, job.id):
        gaps.append("was given a list of items to collect")
    notes = [
        str(event.data.get("text", ""))
        for event in await store.journal.events(job.id, kind="discovery.note")
    ]
    cuts = (await store.jobs.caveats(job.id)).cuts
    gaps += [f"was cut short: {cut}" for cut in cuts if cut != job.shortfall]
    gaps += [f"was cut short: {note}" for note in notes if _PAGES in note]
    rest = [f"{job.id} noted: {note}" for note in dict.fromkeys(notes) if _PAGES not in note]
    return Coverage(tuple(gaps), tuple(rest))


async def _was_given_its_items(store: Store, job: str) -> bool:
    """Say whether the items were there before the run began: nobody asked the site for more."""
    found = await store.journal.events(job, kind="job.discovered", limit=1)
    started = await store.journal.events(job, kind="job.started", limit=1)
    return bool(found) and (not started or found[0].id < started[0].id)


def differing_scope(older: Job, newer: Job) -> tuple[str, ...]:
    """Return in what two runs were asked for different things."""
    options = [
        option
        for name, option in _SCOPE.items()
        if (older.settings.get(name) or {}) != (newer.settings.get(name) or {})
    ]
    words = [f"`{name}` in the manifest" for name in _edited(older, newer)]
    return tuple(
        f"was asked for something else than {older.id} ({word} differs)"
        for word in (*options, *words)
    )


def _edited(older: Job, newer: Job) -> list[str]:
    """Return what differs between the manifests of two runs and decides what is found."""
    then, now = (_deciding(job.settings.get("manifest") or {}) for job in (older, newer))
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))


def _deciding(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides which items are found: of a manifest, and of each part of it."""
    items = written.get("items")
    if isinstance(items, Mapping) and items.get("elements") and not written.get("key"):
        return dict(written)  # the key of each element is made of its fields
    return {
        name: _named(value) if name in _NAMES else _part(value)
        for name, value in written.items()
        if name not in _ASIDE
    }


def _named(parts: Any) -> Any:
    if not isinstance(parts, Mapping):
        return parts
    return {name: _part(one) for name, one in parts.items()}


def _part(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: one for name, one in value.items() if name not in {"about", "fields", "rate"}}


def _gaps(job: Job) -> list[str]:
    gaps = []
    if job.state in OPEN_STATES:
        gaps.append(f"has not ended; it is {job.state.value}")
    elif not job.is_discovered:
        gaps.append(f"could not find all of its items ({job.state.value})")
    if job.shortfall:
        gaps.append(f"did not find all of its items: {job.shortfall}")
    if _is_incremental(job.settings.get("manifest")):
        gaps.append("asks only for what changed (incremental)")
    return gaps


def _is_incremental(manifest: Any) -> bool:
    endpoints = (manifest or {}).get("endpoints")
    if not isinstance(endpoints, Mapping):
        return False
    return any(isinstance(one, Mapping) and one.get("incremental") for one in endpoints.values())
