"""What may need a person now: the latest state of sources, flows, schedules and domains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, func, or_, select

from longline.storage.database import Repository, reads
from longline.storage.events.projections import ProjectionRow, read_rows
from longline.storage.scheduling.flows import OPEN_FLOWS, StepState
from longline.storage.scheduling.schedules import late_sources
from longline.storage.schema import flow_runs, flow_steps, occurrences, projection_rows


@dataclass(frozen=True, slots=True)
class WaitingStep:
    """A step of a run that waits for approval, and what it asks.

    `question` is empty if there is none, or the flow has to fill in values first.
    """

    run: str
    step: str
    since: float
    question: str


@dataclass(frozen=True, slots=True)
class LatestFlowRun:
    """The newest run of a flow, or one that has not ended.

    `waiting` are the steps that wait for approval, also those of the flows that it contains.
    """

    run: str
    flow: str
    state: str
    reason: str | None
    changed_at: float
    waiting: Sequence[WaitingStep]


@dataclass(frozen=True, slots=True)
class MissedRuns:
    """Occurrences of a schedule that were not started; `reason` is that of the last one."""

    schedule: str
    count: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class LatestStates:
    """Rows of the projections `sources` and `domains`, and what else has a state.

    `domains` are those that do not work, or have refused requests since a time. `items` counts the
    items of the newest job of each source by state. `late` has the sources whose data is older than
    its limit.
    """

    sources: Sequence[ProjectionRow]
    items: Mapping[str, Mapping[str, int]]
    domains: Sequence[ProjectionRow]
    late: Mapping[str, Mapping[str, Any]]
    flows: Sequence[LatestFlowRun]


class Attention(Repository):
    """Reads the latest states of a home."""

    @reads
    def latest(
        self, connection: Connection, *, since: float, domains: int | None = None
    ) -> LatestStates:
        """Return the latest states, on one snapshot.

        Of the domains that are in trouble now, or were since a time, at most `domains`: those that
        changed last.
        """
        sources = read_rows(connection, "sources")
        runs: list[ProjectionRow] = []
        jobs = [row["job"] for row in sources if row["job"] is not None]
        for start in range(0, len(jobs), 5000):  # SQLite allows 32,766 variables
            runs += read_rows(connection, "runs", keys=jobs[start : start + 5000])
        return LatestStates(
            sources=sources,
            items={row["job"]: row["items"] for row in runs},
            domains=read_rows(connection, "domains", where=_is_in_trouble(since), limit=domains),
            late=late_sources(connection),
            flows=_latest_flow_runs(connection),
        )

    @reads
    def late(self, connection: Connection) -> dict[str, Mapping[str, Any]]:
        """Return the sources whose data is older than its limit, with the event about it."""
        return late_sources(connection)

    @reads
    def missed(self, connection: Connection, start: float, end: float) -> list[MissedRuns]:
        """Return by schedule the occurrences from `start` to `end` that were missed."""
        is_missed = and_(
            occurrences.c.fate == "missed",
            occurrences.c.nominal_at >= start,
            occurrences.c.nominal_at < end,
        )
        query = select(occurrences.c.schedule, occurrences.c.reason).where(is_missed)
        found: dict[str, MissedRuns] = {}
        for name, reason in connection.execute(query.order_by(occurrences.c.nominal_at)):
            count = found[name].count if name in found else 0
            found[name] = MissedRuns(name, count + 1, reason)
        return sorted(found.values(), key=lambda one: one.schedule)


def _is_in_trouble(since: float) -> ColumnElement[bool]:
    row = projection_rows.c.data
    return or_(
        row["breaker"].as_string() == "open",
        row["banned_at"].as_float() >= since,
        row["refused_at"].as_float() >= since,
        row["auth_problem"].as_string().is_not(None),
        row["robots_problem"].as_string().is_not(None),
    )


def _latest_flow_runs(connection: Connection) -> list[LatestFlowRun]:
    later = flow_runs.alias("later")
    has_later = exists().where(
        later.c.flow == flow_runs.c.flow,
        later.c.root == later.c.id,
        or_(
            later.c.created_at > flow_runs.c.created_at,
            and_(later.c.created_at == flow_runs.c.created_at, later.c.id > flow_runs.c.id),
        ),
    )
    changed = func.coalesce(
        flow_runs.c.ended_at, flow_runs.c.started_at, flow_runs.c.created_at
    ).label("changed_at")
    query = (
        select(
            *(flow_runs.c.id, flow_runs.c.flow, flow_runs.c.state, flow_runs.c.reason),
            changed,
        )
        .where(flow_runs.c.root == flow_runs.c.id)
        .where(or_(flow_runs.c.state.in_(OPEN_FLOWS), ~has_later))
        .order_by(flow_runs.c.flow, flow_runs.c.created_at)
    )
    waiting = _waiting_steps(connection)
    return [LatestFlowRun(*row, waiting.get(row.id, ())) for row in connection.execute(query)]


def _waiting_steps(connection: Connection) -> Mapping[str, Sequence[WaitingStep]]:
    """Return the steps that wait for approval by the outermost run, the longest waiting first."""
    query = (
        select(
            *(flow_runs.c.root, flow_runs.c.id, flow_steps.c.step),
            *(flow_steps.c.started_at, flow_runs.c.definition),
        )
        .join_from(flow_runs, flow_steps, flow_steps.c.run_id == flow_runs.c.id)
        .where(flow_runs.c.state.in_(OPEN_FLOWS), flow_steps.c.state == StepState.WAITING)
        .order_by(flow_steps.c.started_at, flow_runs.c.id, flow_steps.c.step)
    )
    found: defaultdict[str, list[WaitingStep]] = defaultdict(list)
    for root, run, step, since, definition in connection.execute(query):
        found[root].append(WaitingStep(run, step, since, _question_of(definition, step)))
    return found


def _question_of(definition: Mapping[str, Any], step: str) -> str:
    """Return the message of a step in the frozen definition of a flow; empty if it has names."""
    steps = definition.get("spec", {}).get("steps", ())
    message = next((one["approve"]["message"] for one in steps if one["name"] == step), "")
    return "" if "{" in message else message
