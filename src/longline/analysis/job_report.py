"""The performance and validation report of a job: figures, and checks that can fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from longline.core.clock import utc_datetime
from longline.core.model import OPEN_STATES, Caveats, ItemState, Job
from longline.engine.progress import Progress
from longline.storage.jobs import Findings
from longline.storage.store import Store

_WANTED_SUCCESS = 0.95
_LONGEST_MEAN = 10.0
_FEWEST_AN_HOUR = 100
_MOST_MEMORY = 1_000_000_000
_SHOWN = 10
_NAMED = 3  # cuts that stand in the table


@dataclass(frozen=True, slots=True)
class Check:
    """One claim about the job, and what was found."""

    claim: str
    holds: bool
    found: str


@dataclass(frozen=True, slots=True)
class Audit:
    """All figures and checks of one job."""

    job: str
    source: str
    state: str
    figures: dict[str, Any]
    checks: tuple[Check, ...]
    failures: tuple[tuple[str, str, str, str | None], ...]
    reason: str | None = None
    caveats: Caveats = field(default_factory=Caveats)

    @property
    def is_good(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        values = asdict(self)
        del values["caveats"]
        return values | self.caveats.as_dict() | {"is_good": self.is_good}


def audit(
    progress: Progress,
    findings: Findings,
    *,
    reason: str | None = None,
    caveats: Caveats | None = None,
) -> Audit:
    """Judge a job by what was committed, and by what it reported at its end."""
    caveats = caveats or Caveats()
    figures = _figures(progress, findings)
    whole = Check(
        "discovery was not cut short",
        not caveats.cuts and progress.is_discovered,
        "; ".join(caveats.cuts[:_NAMED]) or ("whole" if progress.is_discovered else "not finished"),
    )
    checks = (whole, *_validation(progress, findings), *_performance(progress, figures))
    return Audit(
        progress.job,
        progress.source,
        progress.state.value,
        figures,
        checks,
        findings.failures,
        reason,
        caveats,
    )


def _figures(progress: Progress, findings: Findings) -> dict[str, Any]:
    spent = sum(run["seconds"] for run in findings.runs)
    memory = [run["peak_memory_bytes"] for run in findings.runs]
    processed = progress.processed
    scores = findings.scores
    return {
        "discovered": progress.total,
        **{state.value: progress.counts[state] for state in ItemState},
        "success_rate": progress.success_rate,
        "runs": len(findings.runs),
        "seconds": round(spent, 3),
        "items_per_hour": round(processed / spent * 3600, 1) if spent else None,
        "mean_seconds": progress.mean_seconds,
        "median_seconds": _quantile(findings.seconds, 0.5),
        "p95_seconds": _quantile(findings.seconds, 0.95),
        "slowest_seconds": findings.seconds[-1] if findings.seconds else None,
        "requests": progress.figure("requests"),
        "requests_per_item": round(progress.figure("requests") / processed, 2)
        if processed
        else None,
        "retries": progress.figure("retries"),
        "rate_limited": progress.figure("rate_limited"),
        "received_bytes": progress.figure("received_bytes"),
        "waited_seconds": round(progress.figures.get("waited", 0.0), 1),
        "peak_memory_bytes": max(memory) if memory else None,
        "mean_score": round(sum(scores) / len(scores), 2) if scores else None,
        "grades": findings.grades,
        "failures_by_kind": dict(Counter(kind for _, kind, _, _ in findings.failures)),
    }


def _validation(progress: Progress, findings: Findings) -> list[Check]:
    counts = progress.counts
    nulls = findings.unexplained_nulls
    return [
        Check(
            "discovered = stored + unchanged + skipped + failed + quarantined",
            progress.remaining == 0 and progress.is_discovered,
            f"{progress.total} discovered, {progress.processed} finished",
        ),
        Check(
            "every stored or unchanged item has its record",
            findings.items_without_record == 0,
            f"{counts[ItemState.STORED] + counts[ItemState.UNCHANGED]} items, "
            f"{findings.items_without_record} without",
        ),
        Check(
            "no item was finished twice",
            findings.keys_stored_twice == 0,
            f"{findings.keys_stored_twice} items",
        ),
        Check(
            "no empty field without a reason",
            not nulls,
            f"{', '.join(nulls[:3])} …" if nulls else "none",
        ),
    ]


def _performance(progress: Progress, figures: dict[str, Any]) -> list[Check]:
    rate, mean = progress.success_rate, progress.mean_seconds
    hourly, memory = figures["items_per_hour"], figures["peak_memory_bytes"]
    return [
        Check(
            f"at least {_WANTED_SUCCESS:.0%} success",
            rate is not None and rate >= _WANTED_SUCCESS,
            "nothing was tried" if rate is None else f"{rate:.1%}",
        ),
        Check(
            "no answer was 429", not figures["rate_limited"], f"{figures['rate_limited']} answers"
        ),
        Check(
            f"under {_LONGEST_MEAN:g} s an item on average",
            mean is not None and mean < _LONGEST_MEAN,
            "unknown" if mean is None else f"{mean:.2f} s",
        ),
        Check(
            f"more than {_FEWEST_AN_HOUR} items an hour",
            hourly is not None and hourly > _FEWEST_AN_HOUR,
            "unknown" if hourly is None else f"{hourly:,.0f}",
        ),
        Check(
            "under 1 GB of memory",
            memory is not None and memory < _MOST_MEMORY,
            "unknown" if memory is None else f"{memory / 1e6:,.0f} MB",
        ),
    ]


def _quantile(ordered: tuple[float, ...], share: float) -> float | None:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


def as_markdown(result: Audit, at: float) -> str:
    """Return the report as a document."""
    lines = [
        f"# Report of {result.job}",
        "",
        (
            f"Source {result.source}, state {result.state}, written "
            f"{utc_datetime(at):%Y-%m-%d %H:%M} UTC by `longline report`."
        ),
        *_caveats(result.caveats),
        "",
        "| check | holds | found |",
        "|---|---|---|",
        *(
            f"| {one.claim} | {'yes' if one.holds else '**no**'} | {one.found} |"
            for one in result.checks
        ),
        "",
        "| figure | value |",
        "|---|---|",
        *(f"| {name} | {_shown(value)} |" for name, value in result.figures.items()),
    ]
    if result.failures:
        lines += ["", f"## Failures (first {_SHOWN} of {len(result.failures)})", ""]
        lines += [
            f"- `{key}` {state}, {kind}: {reason}"
            for state, kind, key, reason in result.failures[:_SHOWN]
        ]
    return "\n".join([*lines, ""])


def _caveats(caveats: Caveats) -> list[str]:
    lines = [f"- cut short: {one}" for one in caveats.cuts]
    if caveats.limit is not None:
        lines.append(f"- limited to {caveats.limit} items, as asked")
    lines += [f"- warning: {one}" for one in caveats.warnings]
    return ["", *lines] if lines else []


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in sorted(value.items())) or "none"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value:,}"


# ---------------- How much of its site a run has seen: what it left out, as far as that is known

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
        for event in await store.event_log.events(job.id, kind="discovery.note")
    ]
    cuts = (await store.jobs.caveats(job.id)).cuts
    gaps += [f"was cut short: {cut}" for cut in cuts if cut != job.shortfall]
    gaps += [f"was cut short: {note}" for note in notes if _PAGES in note]
    rest = [f"{job.id} noted: {note}" for note in dict.fromkeys(notes) if _PAGES not in note]
    return Coverage(tuple(gaps), tuple(rest))


async def _was_given_its_items(store: Store, job: str) -> bool:
    """Return True if all items were queued before the run began, so nothing was discovered."""
    found = await store.event_log.events(job, kind="job.discovered", limit=1)
    started = await store.event_log.events(job, kind="job.started", limit=1)
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
