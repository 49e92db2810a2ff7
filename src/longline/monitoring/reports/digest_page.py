"""The page of a digest: first what needs a person, then what ran, trends, domains, next runs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from longline.core.output import count_text
from longline.monitoring.reports.digest import Digest, Need, RunTotals, SourceRuns
from longline.monitoring.reports.page import (
    UNKNOWN,
    Block,
    Chart,
    Code,
    Level,
    Notes,
    ReportPage,
    ReportSection,
    ReportTable,
    Series,
    Strip,
    Tag,
    count_of,
    count_or_nothing,
    day_and_time,
    filled_table,
    in_zone,
    share_of,
    span_of,
    state_tag,
)

_MAX_ROWS = 200  # sources in a table
_MOST_ENDS = 20  # runs of a source in its strip
_LEVELS = (
    ("complete", Level.GOOD),
    ("partial", Level.WARNING),
    ("failed", Level.BAD),
    ("cancelled", Level.NEUTRAL),
)


def digest_page(digest: Digest, name: str = "") -> ReportPage:
    """Return the page of a digest; `name` is that of the scheduled report."""
    bad = any(need.level is Level.BAD for need in digest.needs)
    level = Level.BAD if bad else Level.WARNING if digest.needs else Level.GOOD
    return ReportPage(
        title=f"Digest {name}".strip() + f", {_period_text(digest)}",
        state=digest_state(digest),
        level=level,
        about=_about_text(digest),
        sections=(
            ReportSection("Needs attention", (_needs(digest),)),
            ReportSection("What ran", tuple(_sources(digest))),
            ReportSection("Trends", tuple(_trends(digest))),
            ReportSection("Domains in trouble", tuple(_domains(digest))),
            ReportSection("Missed runs", tuple(_missed(digest))),
            ReportSection("Next runs", tuple(_next(digest))),
        ),
    )


def digest_state(digest: Digest) -> str:
    """Return the state of a digest in one sentence, such as the subject of a mail."""
    count = len(digest.needs)
    if count:
        first = ", ".join(f"{_name(one)} {one.kind}" for one in digest.needs[:3])
        more = f" and {count - 3} more" if count > 3 else ""  # noqa: PLR2004  # those named
        verb = "needs" if count == 1 else "need"
        return f"{count_text(count, 'problem')} {verb} attention: {first}{more}"
    if not digest.totals.runs:
        return "Nothing ran, and nothing needs attention"
    return f"Nothing needs attention; {_runs_text(digest.totals)}"


def _name(need: Need) -> str:
    return need.subject.partition("/")[2] or need.subject


def _runs_text(totals: RunTotals, of: str = "") -> str:
    states = ", ".join(f"{count:,} {state}" for state, count in totals.states.items())
    return f"{count_text(totals.runs, 'run')}{of} ended ({states})"


def _about_text(digest: Digest) -> str:
    totals = digest.totals
    parts = []
    if totals.runs:
        parts.append(_runs_text(totals, f" of {count_text(len(digest.sources), 'source')}"))
        changed = (totals.new, totals.changed, totals.gone)
        if None not in changed:
            parts.append("{:,} new, {:,} changed and {:,} gone records".format(*changed))
    else:
        parts.append("No run ended in this period")
    if digest.running:
        parts.append(f"running now: {', '.join(digest.running[:5])}")
    parts.append(f"created {in_zone(digest.made_at, digest.zone):%Y-%m-%d %H:%M %Z}")
    return " · ".join(parts)


def _period_text(digest: Digest) -> str:
    start, end = (in_zone(at, digest.zone) for at in (digest.period.start, digest.period.end))
    zone = f"{end:%Z}"
    if _is_midnight(start) and _is_midnight(end):
        return f"{start:%Y-%m-%d} to {end:%Y-%m-%d} ({zone})"
    return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} ({zone})"


def _is_midnight(at: datetime) -> bool:
    return (at.hour, at.minute, at.second) == (0, 0, 0)


def _needs(digest: Digest) -> Block:
    if not digest.needs:
        return Notes(("Nothing.",))
    return ReportTable(
        ("subject", "state", "reason", "since", "action"),
        tuple(
            (
                one.subject.removeprefix("source/").replace("/", " ", 1),
                Tag(one.kind, one.level),
                "; ".join((one.summary, *one.details)),
                day_and_time(one.since, digest.zone),
                Code(one.action) if one.action.startswith("longline ") else one.action,
            )
            for one in digest.needs
        ),
        short=frozenset({"since"}),
        wide="reason",
        below="action",
    )


def _sources(digest: Digest) -> Iterable[Block]:
    if not digest.sources:
        yield Notes(("No run ended in this period.",))
        return
    columns = ("items", "new", "changed", "gone", "bad", "duration")
    yield filled_table(
        ReportTable(
            ("source", "last", "runs", *columns, "ended"),
            tuple(_source_row(one, digest) for one in digest.sources[:_MAX_ROWS]),
            numbers=frozenset(columns),
            short=frozenset({"ended"}),
        )
    )
    if len(digest.sources) > _MAX_ROWS:
        yield Notes((f"{len(digest.sources) - _MAX_ROWS} more sources are not listed.",))


def _source_row(one: SourceRuns, digest: Digest) -> tuple[str | Tag | Strip, ...]:
    totals = one.totals
    tags = tuple(state_tag(state) for state in one.ends[-_MOST_ENDS:])
    return (
        one.source,
        state_tag(one.last_state),
        Strip(tags),
        count_of(totals.items),
        *(UNKNOWN if n is None else count_or_nothing(n) for n in _record_counts(totals)),
        count_or_nothing(totals.bad),
        span_of(totals.seconds / totals.runs),
        day_and_time(one.last_ended_at, digest.zone),
    )


def _record_counts(totals: RunTotals) -> tuple[int | None, int | None, int | None]:
    return totals.new, totals.changed, totals.gone


def _trends(digest: Digest) -> Iterable[Block]:
    now, before = digest.totals, digest.before
    if not now.runs and not before.runs:
        return
    if now.runs:
        yield from _charts(digest)
    rows = [
        _count_row("runs", now.runs, before.runs),
        *(
            _count_row(f"{state} runs", now.states.get(state, 0), before.states.get(state, 0))
            for state, _ in _LEVELS
            if state in now.states or state in before.states
        ),
        _count_row("items", now.items, before.items),
        ("success", share_of(now.success), share_of(before.success), _points(now, before)),
        *(
            _count_row(f"{name} records", new, old)
            for name, new, old in zip(
                ("new", "changed", "gone"), _record_counts(now), _record_counts(before), strict=True
            )
        ),
        _count_row("requests", now.requests, before.requests),
        _count_row("429 responses", now.rate_limited, before.rate_limited),
        (
            "total duration",
            span_of(now.seconds),
            span_of(before.seconds),
            _relative_change(now.seconds, before.seconds),
        ),
    ]
    columns = ("this period", "before", "change")
    yield ReportTable(("", *columns), tuple(rows), numbers=frozenset(columns))


def _count_row(name: str, now: int | None, before: int | None) -> tuple[str, str, str, str]:
    return name, count_of(now), count_of(before), _relative_change(now, before)


def _relative_change(now: float | None, before: float | None) -> str:
    if now is None or before is None or not before:
        return ""
    text = f"{(now - before) / before:+.0%}"
    return text.removeprefix("+").removeprefix("-") if text.endswith(("+0%", "-0%")) else text


def _points(now: RunTotals, before: RunTotals) -> str:
    if now.success is None or before.success is None or now.success == before.success:
        return ""
    return f"{(now.success - before.success) * 100:+.1f} points"


def _charts(digest: Digest) -> Iterable[Chart]:
    buckets = digest.buckets
    is_daily = len(buckets) > 1 and buckets[1].start - buckets[0].start > 3600  # noqa: PLR2004  # an hour
    form = "%m-%d" if is_daily else "%H:%M"
    labels = tuple(f"{in_zone(one.start, digest.zone):{form}}" for one in buckets)
    used = [
        Series(state, level, tuple(float(one.states.get(state, 0)) for one in buckets))
        for state, level in _LEVELS
        if any(one.states.get(state) for one in buckets)
    ]
    yield Chart("Ended runs", labels, tuple(used))
    changed = tuple(float(one.changed) for one in buckets)
    if any(changed):
        yield Chart(
            "New, changed and gone records", labels, (Series("records", Level.NEUTRAL, changed),)
        )


def _domains(digest: Digest) -> Iterable[Block]:
    if digest.domains:
        yield ReportTable(
            ("domain", "state", "reason", "since"),
            tuple(
                (
                    one.domain,
                    Tag("problem" if one.level is Level.BAD else "warning", one.level),
                    one.problem,
                    day_and_time(one.since, digest.zone),
                )
                for one in digest.domains
            ),
            short=frozenset({"since"}),
            wide="reason",
        )


def _missed(digest: Digest) -> Iterable[Block]:
    if digest.missed:
        yield ReportTable(
            ("schedule", "missed", "last reason"),
            tuple((one.schedule, count_of(one.count), one.reason or "") for one in digest.missed),
            numbers=frozenset({"missed"}),
            wide="last reason",
        )


def _next(digest: Digest) -> Iterable[Block]:
    if digest.next_runs:
        days = count_text(digest.days or 1, "day")
        times = f"in {days}"
        yield filled_table(
            ReportTable(
                ("next", "schedule", "runs", times, "note"),
                tuple(
                    (
                        day_and_time(one.starts_at, digest.zone),
                        one.schedule,
                        one.target,
                        count_of(one.count),
                        "" if one.paused is None else f"skipped (paused: {one.paused})",
                    )
                    for one in digest.next_runs
                ),
                numbers=frozenset({times}),
                short=frozenset({"next"}),
            )
        )
