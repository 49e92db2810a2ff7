"""The phase itself: questions are leased, asked, and committed the moment they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from longline.clock import Clock, moment
from longline.config.enriching import AnyTask
from longline.enriching.base import Enricher
from longline.enriching.patience import Purse
from longline.enriching.report import PhaseProgress, PhaseReport, PhaseState
from longline.enriching.trying import Trying
from longline.errors import LonglineError
from longline.model import QuestionState
from longline.resilience.limiter import RateLimiter
from longline.stores.asking import OPEN_QUESTIONS, Question
from longline.stores.questions import Questions

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
        self._trying = Trying(task, enricher, clock, limiter)
        self._purse = Purse()
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
            shown = moment(until).isoformat(timespec="seconds")
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
