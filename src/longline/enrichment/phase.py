"""The phase itself: questions are leased, asked, and committed the moment they are answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from longline.core.clock import Clock, utc_datetime
from longline.core.errors import (
    FailureKind,
    FetchError,
    LonglineError,
    UnexpectedShape,
    kind_of,
)
from longline.core.model import QuestionState
from longline.enrichment.enricher import Answer, Enricher, read_answer
from longline.enrichment.task_files import AnyTask, EnrichBudget
from longline.http.messages import origin_of
from longline.limits.errors import Deferred
from longline.limits.limiter import RateLimiter
from longline.limits.retry import RetryPolicy
from longline.storage.records.enrichment import (
    OPEN_QUESTIONS,
    Attempt,
    Question,
    Questions,
    Settled,
)

# ---------------- When a server counts as down, and when a budget as spent: policies that are

_LONGEST_REST = 15.0  # seconds; a server that starts again is found out soon after
_SHORTEST_REST = 1.0


@dataclass(slots=True)
class OutageTimer:
    """How long a server has not given any answer, and how long we put up with it."""

    seconds: float
    _since: float | None = None

    def answered(self) -> None:
        """Note that an answer came, whatever is in it."""
        self._since = None

    def failed(self, now: float) -> None:
        """Note that none came."""
        if self._since is None:
            self._since = now

    def is_over(self, now: float) -> bool:
        """Say whether the server has been silent for too long."""
        return self._since is not None and now - self._since >= self.seconds

    def rest(self, now: float) -> float:
        """Return for how many seconds to leave it alone: twice as long each time."""
        silent = 0.0 if self._since is None else now - self._since
        return min(max(silent, _SHORTEST_REST), _LONGEST_REST)


@dataclass(slots=True)
class PhaseUsage:
    """What one run has used up."""

    requests: int = 0
    tokens: int = 0

    def exceeded(self, budget: EnrichBudget, seconds: float) -> str | None:
        """Return which limit another question would break, in words; None when it may go."""
        if budget.requests is not None and self.requests >= budget.requests:
            return f"the budget of {budget.requests:,} requests is spent"
        if budget.tokens is not None and self.tokens >= budget.tokens:
            return f"the budget of {budget.tokens:,} tokens is spent"
        if budget.seconds is not None and seconds >= budget.seconds:
            return f"the budget of {budget.seconds:g} s is spent"
        return None


# ---------------- One try at a question: what is made of an answer, of a bad one, and of none

_NOT_FOR_US = frozenset({FailureKind.REFUSED, FailureKind.GONE, FailureKind.BLOCKED})
_LONGEST_SAID = 4_000  # characters of a bad answer that are kept


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """How a try ended, and what it means for all others.

    A `reason` stops the whole run, for no other question would fare better; nor would one before
    `rests_until`.
    """

    settled: Settled
    reason: str | None = None
    rests_until: float = 0.0


class QuestionAsker:
    """Asks questions one by one and decides what follows; it never stores anything itself."""

    def __init__(
        self, task: AnyTask, enricher: Enricher, clock: Clock, limiter: RateLimiter | None
    ) -> None:
        self._task = task
        self._enricher = enricher
        self._clock = clock
        self._limiter = limiter
        self._patience = OutageTimer(task.patience)
        self._policy = RetryPolicy(max_attempts=task.attempts)
        self._troubles: Counter[str] = Counter()

    async def attempt(self, question: Question, owner: str) -> AttemptResult:
        """Ask a question once, and say what becomes of it."""
        try:
            answer = await self._enricher.ask(question)
        except FetchError as error:
            return await self._unanswered(question, owner, error)
        self._patience.answered()
        return AttemptResult(self._judged(question, owner, answer))

    def _judged(self, question: Question, owner: str, answer: Answer) -> Settled:
        now = self._clock.now()
        try:
            value = read_answer(answer, question.schema)
        except UnexpectedShape as error:
            said = answer.text[:_LONGEST_SAID]
            bad = self._bad(question, owner, Attempt(now, str(error), said))
            return replace(bad, tokens=answer.tokens)
        state = QuestionState.ANSWERED
        settled = Settled(question, owner, now, state, answer=value, reason=answer.note)
        return replace(settled, tokens=answer.tokens)

    def _bad(self, question: Question, owner: str, attempt: Attempt) -> Settled:
        """Ask again, telling what was wrong, or give up after the last attempt."""
        tries = question.tries + 1
        tried = replace(question, tries=tries, attempts=(*question.attempts, attempt))
        if tries < self._task.attempts:
            reason = attempt.problem
            return Settled(tried, owner, attempt.at, QuestionState.QUEUED, reason=reason)
        reason = f"no answer of {tries} could be used; the last: {attempt.problem}"
        return Settled(tried, owner, attempt.at, QuestionState.FAILED, reason=reason)

    async def _unanswered(self, question: Question, owner: str, error: FetchError) -> AttemptResult:
        now, kind = self._clock.now(), kind_of(error)
        if kind is FailureKind.INVALID:  # the server is well; it is this question that it refuses
            self._patience.answered()
            return AttemptResult(self._bad(question, owner, Attempt(now, str(error))))
        back = Settled(question, owner, now, QuestionState.QUEUED, reason=str(error))
        if kind in _NOT_FOR_US:
            return AttemptResult(back, reason=str(error))
        if isinstance(error, Deferred):
            return AttemptResult(back, rests_until=error.until)
        self._patience.failed(now)
        if kind is not FailureKind.OVERLOAD and await self._is_hopeless(question):
            return AttemptResult(self._given_up(question, owner, error))
        if self._patience.is_over(now):
            seconds = self._task.patience
            return AttemptResult(back, reason=f"no answer for {seconds:g} s and more: {error}")
        if kind is FailureKind.NETWORK:
            await self._let_rest(self._patience.rest(now))
        wait = self._policy.backoff(max(self._troubles[question.id], 1))
        return AttemptResult(replace(back, due=now + wait))

    async def _is_hopeless(self, question: Question) -> bool:
        """Say whether it is this question that the server breaks down at, and no other."""
        self._troubles[question.id] += 1
        if self._troubles[question.id] < 2 * self._task.attempts:
            return False
        return await self._enricher.is_up()

    def _given_up(self, question: Question, owner: str, error: FetchError) -> Settled:
        now, times = self._clock.now(), self._troubles.pop(question.id)
        reason = f"not answered {times} times, although the server is up; the last: {error}"
        tried = replace(question, attempts=(*question.attempts, Attempt(now, str(error))))
        return Settled(tried, owner, now, QuestionState.FAILED, reason=reason)

    async def _let_rest(self, seconds: float) -> None:
        if self._limiter is not None:
            domain = origin_of(self._task.address)[1]
            await self._limiter.penalise(domain, seconds)


# ---------------- How a run of an enrichment task stands and how it ended


class PhaseState(StrEnum):
    """How a run ended; what is paused, limited or interrupted goes on when it is run again."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    PAUSED = "paused"
    LIMITED = "limited"
    INTERRUPTED = "interrupted"


_EXIT_CODES = {
    PhaseState.COMPLETE: 0,
    PhaseState.PARTIAL: 3,
    PhaseState.PAUSED: 4,
    PhaseState.LIMITED: 0,  # somebody wanted no more than this
    PhaseState.INTERRUPTED: 130,
}


@dataclass(frozen=True, slots=True)
class PhaseProgress:
    """How far a task is: its records by state, and what this run took until now."""

    task: str
    records: Mapping[str, int]
    requests: int
    tokens: int
    seconds: float

    @property
    def total(self) -> int:
        """How many records ask something."""
        return sum(self.records.values())

    @property
    def open(self) -> int:
        """How many records have neither an answer nor a reason why not."""
        return sum(self.records.get(state, 0) for state in OPEN_QUESTIONS)


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """How a run ended; a `reason` says why it did not go on."""

    state: PhaseState
    progress: PhaseProgress
    reason: str | None = None

    @property
    def exit_code(self) -> int:
        """What a command says at its end."""
        return _EXIT_CODES[self.state]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, ready for JSON."""
        figures = asdict(self.progress)
        by_state = {state.value: figures["records"].get(state, 0) for state in QuestionState}
        return {**figures, "state": self.state.value, "reason": self.reason, "records": by_state}


# Seconds that a lease lasts without a heartbeat: longer than one may wait for other processes'
# writes, lest a living run lose what it is asking. Runs that died on this host are found at once.
_LEASE = 90.0
_BEAT = 2.0
_LONGEST_WAIT = 60.0  # seconds; no run waits longer for the next question to be due
_LOOK = 1.0  # seconds between two looks for something to do
_ASKED_BY_OTHERS = "another task that asks the same has taken over the rest"

OnProgress = Callable[[PhaseProgress], None]
DeadAmong = Callable[[Iterable[str]], list[str]]
"""Returns the owners of leases that are surely dead."""


class Phase:
    """Asks the queued questions of a task, until all are answered or there is a reason to stop.

    Args:
        task: what is asked, how fast, and how much.
        questions: where they are queued.
        enricher: who is asked.
        clock: what to wait by.
        owner: a name that no other run has.
        limiter: what keeps the pace of the server.
        dead_among: finds owners whose leases can be taken over at once.
        on_progress: told every two seconds how far it is.
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
        self._clock = clock
        self._owner = owner
        self._dead_among = dead_among
        self._on_progress = on_progress
        self._trying = QuestionAsker(task, enricher, clock, limiter)
        self._purse = PhaseUsage()
        self._started = clock.now()
        self._reason: str | None = None
        self._is_interrupted = False
        self._left: int | None = None
        self._rests_until = 0.0
        self._turn = asyncio.Lock()

    def stop(self) -> None:
        """Ask nothing more; what is being asked is waited for."""
        self._is_interrupted = True

    async def run(self, limit: int | None = None) -> PhaseReport:
        """Ask what is queued; at most `limit` questions come to an end.

        Raises:
            StoreError: nothing can be committed any more.
        """
        self._left = limit
        try:
            await self._reclaim()
            await self._work_together()
        finally:
            # What was cut off in the middle was not answered, so another may ask it at once.
            await self._questions.release(self._task.enrich, self._owner)
        return await self._report()

    async def progress(self) -> PhaseProgress:
        """Return how far the task is."""
        name = self._task.enrich
        counts = (await self._questions.counts(name)).get(name, {})
        return PhaseProgress(
            task=name,
            records={state: count["records"] for state, count in counts.items()},
            requests=self._purse.requests,
            tokens=self._purse.tokens,
            seconds=self._clock.now() - self._started,
        )

    async def _work_together(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                beside = [group.create_task(self._beat()), group.create_task(self._tell())]
                workers = [group.create_task(self._work()) for _ in range(self._task.concurrency)]
                await asyncio.wait(workers)
                for task in beside:
                    task.cancel()
        except* LonglineError as several:
            raise several.exceptions[0] from several

    async def _work(self) -> None:
        while self._may_ask():
            question = await self._take()
            if question is not None:
                await self._try(question)
            elif await self._is_done():
                return

    async def _take(self) -> Question | None:
        """Lease a question and count it, one worker at a time: all keep to the limits together."""
        async with self._turn:
            now = self._clock.now()
            if not self._may_ask() or now < self._rests_until:
                return None
            question = await self._questions.lease(
                self._task.enrich, self._owner, at=now, until=now + _LEASE
            )
            if question is not None:
                self._purse.requests += 1
                self._count(-1)
            return question

    def _may_ask(self) -> bool:
        if self._is_interrupted or self._reason is not None or self._left == 0:
            return False
        seconds = self._clock.now() - self._started
        self._reason = self._purse.exceeded(self._task.budget, seconds)
        return self._reason is None

    async def _try(self, question: Question) -> None:
        trial = await self._trying.attempt(question, self._owner)
        settled = trial.settled
        if settled.state in OPEN_QUESTIONS:
            self._count(1)
        self._purse.tokens += settled.tokens
        # Whoever cancels us here must not make us forget an answer that has come.
        await asyncio.shield(self._questions.settle(settled))
        if trial.rests_until:
            self._purse.requests -= 1  # nothing was sent
            self._rests_until = max(self._rests_until, trial.rests_until)
        self._reason = self._reason or trial.reason

    def _count(self, number: int) -> None:
        if self._left is not None:
            self._left += number

    async def _is_done(self) -> bool:
        """Wait a moment for something to do; True when nothing will come any more."""
        standing = await self._questions.standing(self._task.enrich)
        if not standing.queued and not standing.leased:
            return True
        until = max(standing.due or 0.0, self._rests_until)
        wait = until - self._clock.now() if standing.queued else _LOOK
        if not standing.leased and wait > max(self._task.patience, _LONGEST_WAIT):
            shown = utc_datetime(until).isoformat(timespec="seconds")
            self._reason = f"{self._task.address} asks for a rest until {shown}"
            return True
        await self._clock.sleep(min(max(wait, 0.0), _LOOK))
        return False

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep(_BEAT)
            until = self._clock.now() + _LEASE
            await self._questions.renew(self._task.enrich, self._owner, until)
            await self._reclaim()

    async def _tell(self) -> None:
        """Tell how far it is; beside the heartbeat, for counting may take a while."""
        while self._on_progress is not None:
            self._on_progress(await self.progress())
            await self._clock.sleep(_BEAT)

    async def _reclaim(self) -> None:
        """Take over what dead runs have leased."""
        name = self._task.enrich
        dead = self._dead_among(await self._questions.owners(name))
        await self._questions.reclaim(name, self._clock.now(), dead)

    async def _report(self) -> PhaseReport:
        progress = await self.progress()
        if self._on_progress is not None:
            self._on_progress(progress)
        state = self._state(progress)
        reason = self._reason or _ASKED_BY_OTHERS
        return PhaseReport(state, progress, reason if state is PhaseState.PAUSED else None)

    def _state(self, progress: PhaseProgress) -> PhaseState:
        if not progress.open:
            has_failed = progress.records.get(QuestionState.FAILED, 0) > 0
            return PhaseState.PARTIAL if has_failed else PhaseState.COMPLETE
        if self._is_interrupted:
            return PhaseState.INTERRUPTED
        is_limited = self._left == 0 and self._reason is None
        return PhaseState.LIMITED if is_limited else PhaseState.PAUSED
