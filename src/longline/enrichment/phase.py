"""Run an enrichment task: enqueue its questions, ask them, and commit each answer immediately."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import chain, islice
from math import inf
from typing import Any

from longline.config.expressions import look_up
from longline.core.clock import Clock, utc_datetime
from longline.core.errors import (
    BadOption,
    Deferred,
    FailureKind,
    FetchError,
    LonglineError,
    UnexpectedShape,
    kind_of,
)
from longline.core.model import QuestionState
from longline.enrichment.enricher import Enricher, question_maker, read_answer
from longline.enrichment.task_files import AnyTask
from longline.http.messages import origin_of
from longline.limits.limiter import RateLimiter
from longline.limits.retry import RetryPolicy
from longline.storage.database import Row
from longline.storage.enrichment import (
    OPEN_QUESTIONS,
    Attempt,
    Question,
    QuestionOutcome,
    Questions,
)
from longline.storage.query import RecordQuery, parse_condition
from longline.storage.records import Records

_MAX_PAUSE = 15.0  # seconds, so that a restarted server is soon used again
_MIN_PAUSE = 1.0
_REFUSALS = frozenset({FailureKind.REFUSED, FailureKind.GONE, FailureKind.BLOCKED})
_MAX_STORED = 4_000  # characters of an invalid answer
# Seconds that a lease lasts without a heartbeat: longer than a write may wait for other processes,
# so that a live run keeps its leases. Dead runs on this host are detected immediately.
_LEASE = 90.0
_HEARTBEAT = 2.0
_MAX_WAIT = 60.0  # seconds that a run waits for the next question
_POLL_INTERVAL = 1.0  # seconds
_BATCH = 500  # records per transaction
_ABSENT = object()
_TAKEN_OVER = "another run is asking the remaining questions"

OnProgress = Callable[["PhaseProgress"], None]
DeadAmong = Callable[[Iterable[str]], list[str]]
"""Returns the owners of leases that are surely dead."""


class PhaseState(StrEnum):
    """How a run ended; a paused, limited or interrupted one continues when it is run again."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    PAUSED = "paused"
    LIMITED = "limited"
    INTERRUPTED = "interrupted"


_EXIT_CODES = {
    PhaseState.COMPLETE: 0,
    PhaseState.PARTIAL: 3,
    PhaseState.PAUSED: 4,
    PhaseState.LIMITED: 0,  # the user set the limit
    PhaseState.INTERRUPTED: 130,
}


@dataclass(frozen=True, slots=True)
class PhaseProgress:
    """The records of a task by state, and what this run has used."""

    task: str
    records: Mapping[str, int]
    requests: int
    tokens: int
    seconds: float

    @property
    def total(self) -> int:
        """The number of records with a question."""
        return sum(self.records.values())

    @property
    def open(self) -> int:
        """The number of records without an answer or a final reason."""
        return sum(self.records.get(state, 0) for state in OPEN_QUESTIONS)


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """How a run ended; `reason` says why it paused."""

    state: PhaseState
    progress: PhaseProgress
    reason: str | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return _EXIT_CODES[self.state]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        values = asdict(self.progress)
        by_state = {state.value: values["records"].get(state, 0) for state in QuestionState}
        return {**values, "state": self.state.value, "reason": self.reason, "records": by_state}


class Phase:
    """Asks the queued questions of a task until all are answered or there is a reason to stop.

    Args:
        task: the questions, the rate and the budget.
        questions: the queue.
        enricher: answers the questions.
        clock: the time.
        owner: a unique name of this run.
        limiter: the rate limit of the server.
        dead_among: finds owners whose leases can be reclaimed immediately.
        on_progress: called every two seconds.
    """

    def __init__(
        self,
        task: AnyTask,
        questions: Questions,
        enricher: Enricher,
        clock: Clock,
        *,
        owner: str,
        limiter: RateLimiter | None = None,
        dead_among: DeadAmong = lambda _owners: [],
        on_progress: OnProgress | None = None,
    ) -> None:
        self._task = task
        self._questions = questions
        self._enricher = enricher
        self._clock = clock
        self._owner = owner
        self._dead_among = dead_among
        self._on_progress = on_progress
        self._limiter = limiter
        self._policy = RetryPolicy(max_attempts=task.attempts)
        self._failures: Counter[str] = Counter()  # of the server, by question
        self._silent_since: float | None = None
        self._requests = 0
        self._tokens = 0
        self._started = clock.now()
        self._reason: str | None = None
        self._is_interrupted = False
        self._remaining: float = inf
        self._paused_until = 0.0
        self._turn = asyncio.Lock()

    def stop(self) -> None:
        """Stop after the questions in flight."""
        self._is_interrupted = True

    async def run(self, limit: int | None = None) -> PhaseReport:
        """Ask the queued questions; settle at most `limit` of them.

        Raises:
            StoreError: an answer cannot be committed.
        """
        self._remaining = inf if limit is None else limit
        try:
            await self._reclaim_questions()
            await self._run_workers()
        finally:
            # Questions that were cut off are not answered, so another run may ask them now.
            await self._questions.release(self._task.enrich, self._owner)
        progress = await self.progress()
        if self._on_progress is not None:
            self._on_progress(progress)
        state = self._final_state(progress)
        reason = self._reason or _TAKEN_OVER
        return PhaseReport(state, progress, reason if state is PhaseState.PAUSED else None)

    async def progress(self) -> PhaseProgress:
        """Return the progress of the task."""
        name = self._task.enrich
        counts = (await self._questions.counts(name)).get(name, {})
        return PhaseProgress(
            task=name,
            records={state: count["records"] for state, count in counts.items()},
            requests=self._requests,
            tokens=self._tokens,
            seconds=self._clock.now() - self._started,
        )

    async def _run_workers(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                background = [
                    group.create_task(self._heartbeat()),
                    group.create_task(self._report_progress()),
                ]
                workers = [
                    group.create_task(self._run_worker()) for _ in range(self._task.concurrency)
                ]
                await asyncio.wait(workers)
                for task in background:
                    task.cancel()
        except* LonglineError as several:
            raise several.exceptions[0] from several

    async def _run_worker(self) -> None:
        while self._may_ask():
            question = await self._lease()
            if question is not None:
                await self._ask_and_commit(question)
            elif await self._is_done():
                return

    async def _lease(self) -> Question | None:
        """Lease a question and count it; one worker at a time, so that all share the limits."""
        async with self._turn:
            now = self._clock.now()
            if not self._may_ask() or now < self._paused_until:
                return None
            question = await self._questions.lease(
                self._task.enrich, self._owner, at=now, until=now + _LEASE
            )
            if question is not None:
                self._requests += 1
                self._remaining -= 1
            return question

    def _may_ask(self) -> bool:
        if self._is_interrupted or self._reason is not None or self._remaining == 0:
            return False
        seconds = self._clock.now() - self._started
        self._reason = self._task.budget.exhausted(
            tokens=self._tokens, requests=self._requests, seconds=seconds
        )
        return self._reason is None

    async def _ask_and_commit(self, question: Question) -> None:
        outcome = await self._ask_once(question)
        if outcome.state in OPEN_QUESTIONS:
            self._remaining += 1
        self._tokens += outcome.tokens
        # A cancellation here must not lose an answer.
        await asyncio.shield(self._questions.complete(outcome))

    async def _ask_once(self, question: Question) -> QuestionOutcome:
        """Ask once, and decide what follows."""
        try:
            answer = await self._enricher.ask(question)
        except FetchError as error:
            return await self._unanswered(question, error)
        self._silent_since = None
        try:
            value = read_answer(answer, question.schema)
        except UnexpectedShape as error:
            outcome = self._invalid(question, str(error), answer.text[:_MAX_STORED])
        else:
            outcome = self._outcome(question, QuestionState.ANSWERED, answer.note, answer=value)
        return replace(outcome, tokens=answer.tokens)

    def _outcome(
        self, question: Question, state: QuestionState, reason: str | None, **more: Any
    ) -> QuestionOutcome:
        now = self._clock.now()
        return QuestionOutcome(question, self._owner, now, state, reason=reason, **more)

    def _invalid(
        self, question: Question, problem: str, response: str | None = None
    ) -> QuestionOutcome:
        """Queue the question again with its problem, or fail it after the last attempt."""
        tries = question.tries + 1
        attempts = (*question.attempts, Attempt(self._clock.now(), problem, response))
        tried = replace(question, attempts=attempts, tries=tries)
        if tries < self._task.attempts:
            return self._outcome(tried, QuestionState.QUEUED, problem)
        reason = f"none of {tries} answers is valid; the last: {problem}"
        return self._outcome(tried, QuestionState.FAILED, reason)

    async def _unanswered(self, question: Question, error: FetchError) -> QuestionOutcome:
        now, kind = self._clock.now(), kind_of(error)
        if kind is FailureKind.INVALID:  # the server refuses this question only
            self._silent_since = None
            return self._invalid(question, str(error))
        back = self._outcome(question, QuestionState.QUEUED, str(error))
        if kind in _REFUSALS:  # every other question would fail the same way
            self._reason = self._reason or str(error)
            return back
        if isinstance(error, Deferred):
            self._requests -= 1  # nothing was sent
            self._paused_until = max(self._paused_until, error.until)
            return back
        self._silent_since = now if self._silent_since is None else self._silent_since
        outage = now - self._silent_since
        if kind is not FailureKind.OVERLOAD:
            self._failures[question.id] += 1
            failures = self._failures[question.id]
            if failures >= 2 * self._task.attempts and await self._enricher.is_up():
                reason = f"{failures} attempts failed although the server is up; the last: {error}"
                del self._failures[question.id]
                return self._outcome(question, QuestionState.FAILED, reason)
        if outage >= self._task.patience:
            self._reason = self._reason or f"no response for {self._task.patience:g} s: {error}"
            return back
        if kind is FailureKind.NETWORK and self._limiter is not None:
            domain = origin_of(self._task.address)[1]
            # As long as the outage so far, so that each pause doubles it.
            await self._limiter.penalise(domain, min(max(outage, _MIN_PAUSE), _MAX_PAUSE))
        wait = self._policy.backoff(max(self._failures[question.id], 1))
        return replace(back, due=now + wait)

    async def _is_done(self) -> bool:
        """Wait for the next question; return True when there will be none."""
        backlog = await self._questions.backlog(self._task.enrich)
        if not backlog.queued and not backlog.leased:
            return True
        until = max(backlog.due or 0.0, self._paused_until)
        wait = until - self._clock.now() if backlog.queued else _POLL_INTERVAL
        if not backlog.leased and wait > max(self._task.patience, _MAX_WAIT):
            shown = utc_datetime(until).isoformat(timespec="seconds")
            self._reason = f"{self._task.address} asks to wait until {shown}"
            return True
        await self._clock.sleep(min(max(wait, 0.0), _POLL_INTERVAL))
        return False

    async def _heartbeat(self) -> None:
        while True:
            await self._clock.sleep(_HEARTBEAT)
            until = self._clock.now() + _LEASE
            await self._questions.renew(self._task.enrich, self._owner, until)
            await self._reclaim_questions()

    async def _report_progress(self) -> None:
        """Report progress, apart from the heartbeat because counting may take long."""
        while self._on_progress is not None:
            self._on_progress(await self.progress())
            await self._clock.sleep(_HEARTBEAT)

    async def _reclaim_questions(self) -> None:
        """Reclaim the leases of dead runs."""
        name = self._task.enrich
        dead = self._dead_among(await self._questions.owners(name))
        await self._questions.reclaim(name, self._clock.now(), dead)

    def _final_state(self, progress: PhaseProgress) -> PhaseState:
        if not progress.open:
            has_failed = progress.records.get(QuestionState.FAILED, 0) > 0
            return PhaseState.PARTIAL if has_failed else PhaseState.COMPLETE
        if self._is_interrupted:
            return PhaseState.INTERRUPTED
        is_limited = self._remaining == 0 and self._reason is None
        return PhaseState.LIMITED if is_limited else PhaseState.PAUSED


# ---------------- Enqueue new questions, and drop those that no record asks any more


@dataclass(frozen=True, slots=True)
class Queued:
    """The number of records of a task, those with a new question, and the new questions.

    `dropped` questions were queued before and no longer belong to the task.
    """

    records: int
    asking: int
    questions: int
    dropped: int = 0
    warnings: tuple[str, ...] = ()


def queries_of(task: AnyTask) -> list[RecordQuery]:
    """Return the queries for the records of a task.

    Raises:
        BadOption: a condition is malformed.
    """
    where = tuple(parse_condition(text) for text in task.where)
    return [RecordQuery(source=source, where=where) for source in dict.fromkeys(task.sources)]


async def queue_records(
    task: AnyTask, records: Records, questions: Questions, clock: Clock
) -> Queued:
    """Enqueue new questions, and drop queued ones that no record of the task asks any more.

    A record with the same question as before costs a read and no write.

    Raises:
        ConfigError: the task does not fit the stored records, or its enricher cannot be made;
            nothing was changed.
    """
    queries, make_question = queries_of(task), question_maker(task)
    warnings = await _check_sources(task, records)
    # The stream reads in the calling thread, which must not be that of the loop.
    warnings += await asyncio.to_thread(_check_fields, task, records, queries)
    # Read first, so that questions which another run queues meanwhile are not dropped.
    gone = await questions.open_links(task.enrich)
    seen = asking = new = 0
    for query in queries:
        async for rows in _read_batches(records.stream(query)):
            requests = {row["id"]: make_question(row) for row in rows}
            known = await questions.linked(task.enrich, list(requests))
            fresh = [
                one
                for record, one in requests.items()
                if known.get(record) != (one.question.id, one.version)
            ]
            new += await questions.enqueue(task.enrich, fresh, clock.now()) if fresh else 0
            seen, asking = seen + len(rows), asking + len(fresh)
            for record in requests:
                gone.pop(record, None)
    dropped, rest = 0, iter(gone.items())
    while part := dict(islice(rest, _BATCH)):
        dropped += await questions.unlink(task.enrich, part)
    await questions.prune(task.enrich)
    return Queued(seen, asking, new, dropped, tuple(warnings))


async def _read_batches(rows: Iterator[Row]) -> AsyncIterator[list[Row]]:
    # The stream reads in the calling thread, which must not be that of the loop.
    while page := await asyncio.to_thread(lambda: list(islice(rows, _BATCH))):
        yield page


async def _check_sources(task: AnyTask, records: Records) -> list[str]:
    """Return warnings for sources without records; raise BadOption if none has any."""
    empty = [
        source
        for source in task.sources
        if not await records.list(RecordQuery(source=source, limit=1))
    ]
    if len(empty) == len(task.sources):
        known = [str(row["source"]) for row in await records.statistics()]
        listed = ", ".join(known) or "none; collect some first"
        problem = f"there are no records of {', '.join(empty)}; sources with records: {listed}"
        raise BadOption("sources", problem)
    return [f"sources: there are no records of {source}" for source in empty]


def _check_fields(task: AnyTask, records: Records, queries: Sequence[RecordQuery]) -> list[str]:
    """Return warnings for fields that no record has; raise BadOption if one of them is needed."""
    missing = list(task.reads)
    known: dict[str, None] = {}
    for row in chain.from_iterable(map(records.stream, queries)):
        known |= dict.fromkeys(row["data"])
        missing = [name for name in missing if look_up(name, row["data"], _ABSENT) is _ABSENT]
        if not missing:  # usually after the first record
            return []
    if not known:  # there are no records to judge by
        return []
    problem = f"no matching record has a field {{!r}}; fields: {', '.join(known)}"
    if needed := [name for name in missing if name in task.needed]:
        raise BadOption(task.asks_by, problem.format(needed[0]))
    return [f"{task.asks_by}: {problem.format(name)}" for name in missing]
