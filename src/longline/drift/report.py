"""Show drift: the fields of a source before, and in its last run."""

from __future__ import annotations

from typing import Any

from longline.core.errors import BadOption
from longline.drift.monitor import NOTICED, Baseline, RunTerms, baseline_for, merge_profiles
from longline.drift.profiles import Profile
from longline.storage.records.profiles import StoredProfile
from longline.storage.store import Store

Row = dict[str, Any]


async def sources_watched(store: Store) -> list[Row]:
    """Return the last run of each source, the newest first."""
    profiles = store.profiles
    found = [await profiles.last(source) for source in await profiles.sources()]
    return [await _run_row(store, one) for one in found if one is not None]


async def drift_of(store: Store, source: str) -> Row:
    """Return the last run of a source, and its fields next to the baseline.

    Raises:
        BadOption: no run of this source has ended yet.
    """
    last = await store.profiles.last(source)
    if last is None:
        listed = ", ".join(sorted(await store.profiles.sources())) or "none"
        raise BadOption("SOURCE", f"no run of {source!r} has ended; known sources: {listed}")
    baseline = await _baseline_of(store, last)
    before, now = baseline.profile or Profile(), Profile.from_json(last.profile)
    names = dict.fromkeys([*now.fields, *before.fields])
    return {
        **await _run_row(store, last),
        "baseline": {"runs": len(baseline.jobs), "records": before.records},
        "fields": [
            {
                "field": name,
                "before": _field_statistics(before, name),
                "now": _field_statistics(now, name),
            }
            for name in names
        ],
    }


async def _baseline_of(store: Store, last: StoredProfile) -> Baseline:
    """Return the baseline of a run at its end, whatever has ended since."""
    terms = RunTerms.from_json(last.profile)
    if "measured_by" not in last.profile:
        return await baseline_for(store, last.source, last.job, terms)
    found = [await store.profiles.find(job) for job in last.profile["measured_by"]]
    return merge_profiles([one for one in found if one is not None], terms)


async def _run_row(store: Store, kept: StoredProfile) -> Row:
    job = await store.jobs.get(kept.job)
    events = await store.events.list(kept.job, kind=NOTICED)
    return {
        "source": kept.source,
        "job": kept.job,
        "at": kept.at,
        "records": kept.profile["records"],
        "is_sound": kept.is_sound,
        "is_accepted": kept.is_accepted,
        "state": job.state.value,
        "reason": job.reason,
        "drift": kept.profile.get("drift", {one.data["field"]: one.data["text"] for one in events}),
        "noticed": [dict(event.data) for event in events],
    }


def _field_statistics(profile: Profile, name: str) -> Row | None:
    known = profile.fields.get(name)
    if known is None or not profile.seen(name):
        return None
    kind = max(known.kinds, key=lambda one: known.kinds[one]) if known.kinds else None
    sketch = known.sizes.get(kind) if kind else None
    return {
        "filled": round(profile.share(name), 4),
        "kind": kind,
        "middle": sketch.quantile(0.5) if sketch else None,
        "lowest": sketch.low if sketch else None,
        "highest": sketch.high if sketch else None,
    }
