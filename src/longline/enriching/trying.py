"""One try at a question: what is made of an answer, of a bad one, and of none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from longline.clock import Clock
from longline.config.enriching import AnyTask
from longline.enriching.answers import read_answer
from longline.enriching.base import Answer, Enricher
from longline.enriching.patience import Patience
from longline.errors import FailureKind, FetchError, Postponed, UnexpectedShape, kind_of
from longline.fetching.messages import origin_of
from longline.model import QuestionState
from longline.resilience.limiter import RateLimiter
from longline.resilience.retry import RetryPolicy
from longline.stores.asking import Attempt, Question, Settled

_NOT_FOR_US = frozenset({FailureKind.REFUSED, FailureKind.GONE, FailureKind.BLOCKED})
_LONGEST_SAID = 4_000  # characters of a bad answer that are kept


@dataclass(frozen=True, slots=True)
class Trial:
    """How a try ended, and what it means for all others.

    A `reason` stops the whole run, for no other question would fare better; nor would one before
    `rests_until`.
    """

    settled: Settled
    reason: str | None = None
    rests_until: float = 0.0


class Trying:
    """Asks questions one by one and decides what follows; it never stores anything itself."""

    def __init__(
        self, task: AnyTask, enricher: Enricher, clock: Clock, limiter: RateLimiter | None
    ) -> None:
        self._task = task
        self._enricher = enricher
        self._clock = clock
        self._limiter = limiter
        self._patience = Patience(task.patience)
        self._policy = RetryPolicy(max_attempts=task.attempts)
        self._troubles: Counter[str] = Counter()

    async def attempt(self, question: Question, owner: str) -> Trial:
        """Ask a question once, and say what becomes of it."""
        try:
            answer = await self._enricher.ask(question)
        except FetchError as error:
            return await self._unanswered(question, owner, error)
        self._patience.answered()
        return Trial(self._judged(question, owner, answer))

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

    async def _unanswered(self, question: Question, owner: str, error: FetchError) -> Trial:
        now, kind = self._clock.now(), kind_of(error)
        if kind is FailureKind.INVALID:  # the server is well; it is this question that it refuses
            self._patience.answered()
            return Trial(self._bad(question, owner, Attempt(now, str(error))))
        back = Settled(question, owner, now, QuestionState.QUEUED, reason=str(error))
        if kind in _NOT_FOR_US:
            return Trial(back, reason=str(error))
        if isinstance(error, Postponed):
            return Trial(back, rests_until=error.until)
        self._patience.failed(now)
        if kind is not FailureKind.OVERLOAD and await self._is_hopeless(question):
            return Trial(self._given_up(question, owner, error))
        if self._patience.is_over(now):
            seconds = self._task.patience
            return Trial(back, reason=f"no answer for {seconds:g} s and more: {error}")
        if kind is FailureKind.NETWORK:
            await self._let_rest(self._patience.rest(now))
        wait = self._policy.backoff(max(self._troubles[question.id], 1))
        return Trial(replace(back, due=now + wait))

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
