"""Pairs of records that are the same thing, by rules or by a person's word; nothing is deleted.

Several processes may look for pairs at once. A record is first put into its blocks, then compared
with those it finds there, then its pairs are written, each step a transaction: of two records that
arrive together, the one whose blocks are committed last sees the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, or_, select

from longline.errors import UnknownRecord
from longline.stores.database import Database
from longline.stores.keys import kept_key
from longline.stores.matches_links import decided, links_around, links_in
from longline.stores.matches_rules import (
    count_outside,
    keep_rules,
    kept_rules,
    outsiders,
    without_records,
    without_value,
)
from longline.stores.matches_words import Decided, Deposit, Entry, Link, Settled
from longline.stores.matches_writing import decide, leave_out, put_into_blocks, settle
from longline.stores.schema import match_blocks, match_records, matches, records

Row = dict[str, Any]
_LOOKUP = 5000  # values in one statement; a stock SQLite takes 32,766


class Matches:
    """What was compared by which rules, what came of it, and what people decided."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def kinds(self) -> list[str]:
        """Return the names of the rules that records were compared by, or people decided on."""
        query = select(match_records.c.kind).union(select(matches.c.kind))
        return await self._database.read(
            lambda connection: list(connection.scalars(query.order_by("kind")))
        )

    async def pending(
        self, kind: str, mark: str, source: str, *, after: str | None = None, limit: int = 200
    ) -> list[Row]:
        """Return records of a source, by key, that the present rules have not compared as they are.

        Args:
            kind: of the rules.
            mark: the hash of the rules.
            source: whose records.
            after: the key of the last one that was returned before.
            limit: at most this many.
        """
        query = _pending(kind, mark, source).limit(limit)
        return await self._rows(query if after is None else query.where(records.c.key > after))

    async def put_into_blocks(self, kind: str, mark: str, entries: Sequence[Entry]) -> set[int]:
        """Move records to their blocks and drop their pairs; return those that wait for it still.

        What a person decided of a pair stays.
        """
        taken: set[int] = await self._database.write(put_into_blocks, (kind, mark, entries))
        return taken

    async def members(self, kind: str, mark: str, blocks: Iterable[str]) -> dict[str, list[int]]:
        """Return the ids of the records that stand in each of these blocks."""
        query = _standing(kind, mark, match_blocks.c.block, match_blocks.c.record_id)
        names = {kept_key(block): block for block in blocks}
        standing: dict[str, list[int]] = {}
        for block, record in await self._looked_up(query, names):
            standing.setdefault(names[block], []).append(record)
        return standing

    async def records(self, ids: Iterable[int]) -> list[Row]:
        """Return these records, by id."""
        wanted = sorted(set(ids))
        rows: list[Row] = []
        for start in range(0, len(wanted), _LOOKUP):
            some = wanted[start : start + _LOOKUP]
            rows += await self._rows(select(records).where(records.c.id.in_(some)))
        return sorted(rows, key=lambda row: row["id"])

    async def settle(self, deposit: Deposit) -> Settled:
        """Write the pairs that were found, and what speaks against joining them, all at once."""
        written: Settled = await self._database.write(settle, deposit)
        return written

    async def leave_out(self, kind: str, sources: Sequence[str]) -> None:
        """Forget the pairs of other sources than these, but for what a person decided."""
        query = outsiders(kind, sources)
        ids = await self._database.read(lambda connection: list(connection.scalars(query)))
        if ids:  # rarely: looking must not keep others from writing
            await self._database.write(leave_out, (kind, ids))

    async def count_outside(self, kind: str, sources: Sequence[str]) -> int:
        """Return how many pairs the rules joined of which one record is of another source."""
        return await self._database.read(
            lambda connection: count_outside(connection, kind, sources)
        )

    async def without_records(self, sources: Sequence[str]) -> list[str]:
        """Return those of the sources that have no record here."""
        return await self._database.read(lambda connection: without_records(connection, sources))

    async def without_value(self, sources: Sequence[str], fields: Sequence[str]) -> list[str]:
        """Return those of the fields that no record of these sources has."""
        return await self._database.read(
            lambda connection: without_value(connection, sources, fields)
        )

    async def keep_rules(self, kind: str, text: str, *, at: float) -> None:
        """Keep the rules that records are compared by, for decisions between two searches."""
        if await self.kept_rules(kind) != text:
            await self._database.write(keep_rules, (kind, text, at))

    async def kept_rules(self, kind: str) -> str | None:
        """Return the rules of the last search; None when there was none."""
        return await self._database.read(lambda connection: kept_rules(connection, kind))

    async def decide(
        self,
        kind: str,
        pair: tuple[int, int],
        decision: str,
        *,
        at: float,
        deposit: Deposit | None = None,
    ) -> None:
        """Keep a person's word on a pair: confirmed or rejected.

        Args:
            kind: of the rules.
            pair: the ids of both records, in any order.
            decision: the word.
            at: when it was said.
            deposit: the pair as rules see it, and who judges what it brings together; None
                leaves that to the next search.
        """
        said = Decided(kind, min(pair), max(pair), decision, at, deposit)
        await self._database.write(decide, said)

    async def find(self, source: str, key: str) -> int:
        """Return the id of a record.

        Raises:
            UnknownRecord: there is none.
        """
        same = (records.c.source == source, records.c.key == kept_key(key))
        query = select(records.c.id).where(*same)
        found: int | None = await self._database.read(lambda connection: connection.scalar(query))
        if found is None:
            raise UnknownRecord(f"{source}/{key}")
        return found

    async def links(self, kind: str) -> list[Link]:
        """Return all pairs without their evidence."""
        return await self._database.read(lambda connection: links_in(connection, kind))

    async def links_around(self, kind: str, record: int) -> list[Link]:
        """Return the pairs that a record is joined with, over however many others."""
        return await self._database.read(
            lambda connection: links_around(connection, kind, [record])
        )

    async def decided(self, kind: str, ids: Iterable[int]) -> list[tuple[int, int]]:
        """Return the pairs of these records that a person decided on."""
        return await self._database.read(lambda connection: decided(connection, kind, ids))

    async def evidence(self, kind: str, ids: Iterable[int]) -> list[Row]:
        """Return the pairs among these records with their evidence, best first."""
        wanted = sorted(set(ids))
        query = (
            select(matches)
            .where(
                matches.c.kind == kind,
                matches.c.left_id.in_(wanted),
                matches.c.right_id.in_(wanted),
            )
            .order_by(matches.c.score.desc(), matches.c.left_id, matches.c.right_id)
        )
        return await self._rows(query)

    async def _rows(self, query: Select[Any]) -> list[Row]:
        return await self._database.read(lambda connection: _plain(connection, query))

    async def _looked_up(self, query: Select[Any], blocks: Iterable[str]) -> list[Any]:
        wanted = sorted(set(blocks))
        found: list[Any] = []
        for start in range(0, len(wanted), _LOOKUP):
            some = query.where(match_blocks.c.block.in_(wanted[start : start + _LOOKUP]))
            found += await self._database.read(
                lambda connection, asked=some: connection.execute(asked).all()  # type: ignore[misc]  # bound now, not later
            )
        return found


def _pending(kind: str, mark: str, source: str) -> Select[Any]:
    same = and_(match_records.c.kind == kind, match_records.c.record_id == records.c.id)
    columns = (records.c.id, records.c.source, records.c.key, records.c.version, records.c.data)
    return (
        select(*columns)
        .select_from(records.outerjoin(match_records, same))
        .where(
            records.c.source == source,
            or_(
                match_records.c.record_id.is_(None),
                match_records.c.version != records.c.version,
                match_records.c.rules != mark,
            ),
        )
        .order_by(records.c.key)  # as the index of source and key has them
    )


def _standing(kind: str, mark: str, *columns: Any) -> Select[Any]:
    """Select from the blocks of records that stand in them by the present rules."""
    same = and_(
        match_records.c.kind == match_blocks.c.kind,
        match_records.c.record_id == match_blocks.c.record_id,
    )
    return (
        select(*columns)
        .select_from(match_blocks.join(match_records, same))
        .where(match_blocks.c.kind == kind, match_records.c.rules == mark)
    )


def _plain(connection: Connection, query: Select[Any]) -> list[Row]:
    # The names that SQLAlchemy gives are of a class of its own, which orjson refuses as keys.
    return [
        {str(name): value for name, value in row.items()}
        for row in connection.execute(query).mappings()
    ]
