"""The questions of all tasks, and which records asked them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from longline.model import QuestionState
from longline.stores import asking, enrichments
from longline.stores.asking import OPEN_QUESTIONS, Question, Settled, Standing, Wish
from longline.stores.database import Database
from longline.stores.schema import enrichments as table
from longline.stores.schema import questions

Row = dict[str, Any]


class Questions:
    """The questions of all tasks, and which records asked them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def asked_by(self, task: str, ids: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Return of these records the question each has asked, and in which version."""
        columns = table.c.record_id, table.c.question_id, table.c.version
        query = select(*columns).where(table.c.task == task, table.c.record_id.in_(ids))
        return await self._database.read(
            lambda connection: {
                record: (question, version)
                for record, question, version in connection.execute(query)
            }
        )

    async def queue(self, task: str, wishes: Sequence[Wish], at: float) -> int:
        """Note what records ask, and queue what nobody has asked; return how many these are."""
        count: int = await self._database.write(asking.queue, (task, wishes, at))
        return count

    async def open_links(self, task: str) -> dict[int, str]:
        """Return by record the questions of a task that have not come to an end."""
        query = (
            select(table.c.record_id, table.c.question_id)
            .join(questions, questions.c.id == table.c.question_id)
            .where(table.c.task == task, questions.c.state.in_(sorted(OPEN_QUESTIONS)))
        )
        return await self._database.read(
            lambda connection: {row.record_id: row.question_id for row in connection.execute(query)}
        )

    async def drop(self, task: str, links: Mapping[int, str]) -> int:
        """Forget that these records ask these questions; return how many.

        What was answered meanwhile stays.
        """
        count: int = await self._database.write(asking.drop, (task, links))
        return count

    async def tidy(self, task: str) -> None:
        """Take over what other tasks have queued, and forget what no record asks any more."""
        await self._database.write(asking.tidy, task)

    async def lease(self, task: str, owner: str, *, at: float, until: float) -> Question | None:
        """Give the next question that is due to a worker; None: there is none."""
        wish = {"b_task": task, "b_owner": owner, "b_at": at, "b_until": until}
        question: Question | None = await self._database.write(asking.lease, wish)
        return question

    async def settle(self, settled: Settled) -> bool:
        """Commit how a try ended; False when that is of no use any more.

        An answer is never thrown away, whoever has the lease, unless there is one already.
        """
        is_settled: bool = await self._database.write(asking.settle, settled)
        return is_settled

    async def renew(self, task: str, owner: str, until: float) -> None:
        """Keep all leases of a living worker."""
        await self._database.write(asking.renew, (task, owner, until))

    async def release(self, task: str, owner: str) -> None:
        """Put back all that a worker has leased."""
        await self._database.write(asking.reclaim, (task, 0.0, [owner]))

    async def reclaim(self, task: str, at: float, dead: Sequence[str] = ()) -> int:
        """Take back expired leases, and at once those of owners known to be dead."""
        count: int = await self._database.write(asking.reclaim, (task, at, dead))
        return count

    async def owners(self, task: str) -> list[str]:
        """Return who holds leases of this task."""
        holders = (
            select(questions.c.lease_owner)
            .where(questions.c.task == task, questions.c.state == QuestionState.LEASED)
            .distinct()
        )
        return await self._database.read(
            lambda connection: [one for one in connection.scalars(holders) if one is not None]
        )

    async def retry(self, task: str) -> int:
        """Queue again what has failed, as if it had not been tried; return how many."""
        count: int = await self._database.write(asking.retry, task)
        return count

    async def standing(self, task: str) -> Standing:
        """Return what is left to do."""
        return await self._database.read(lambda connection: enrichments.standing(connection, task))

    async def counts(self, task: str | None = None) -> dict[str, dict[str, dict[str, int]]]:
        """Return by task and state how many records and how many different questions there are."""
        return await self._database.read(lambda connection: enrichments.counts(connection, task))

    async def figures(self, task: str) -> Row:
        """Return the tokens that a task's questions took, and the models and prompts they had."""
        return await self._database.read(lambda connection: enrichments.figures(connection, task))

    async def reasons(self, task: str, *, limit: int = 10) -> list[Row]:
        """Return why records have no answer, or an empty one, the most frequent reason first."""
        return await self._database.read(
            lambda connection: enrichments.reasons(connection, task, limit)
        )

    async def of_records(self, ids: Iterable[int]) -> dict[int, list[Row]]:
        """Return what machines were asked about these records; see `stores/enrichments.py`."""
        wanted = list(ids)
        return await self._database.read(
            lambda connection: enrichments.enrichments_of(connection, wanted)
        )
