"""The rules of the last search for pairs, and what in this home they speak of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection, Select, delete, func, insert, or_, select

from longline.errors import BadOption
from longline.stores.fields import Field, path_of
from longline.stores.schema import match_records, match_rules, matches, records


def kept_rules(connection: Connection, kind: str) -> str | None:
    """Return the rules that were kept last; None when there are none."""
    found: str | None = connection.scalar(
        select(match_rules.c.rules).where(match_rules.c.kind == kind)
    )
    return found


def keep_rules(connection: Connection, argument: tuple[str, str, float]) -> None:
    """Keep rules in the place of others."""
    kind, text, at = argument
    connection.execute(delete(match_rules).where(match_rules.c.kind == kind))
    connection.execute(insert(match_rules).values(kind=kind, rules=text, at=at))


def without_records(connection: Connection, sources: Iterable[str]) -> list[str]:
    """Return the sources that have no record at all."""
    return [
        source
        for source in sources
        if connection.scalar(select(records.c.id).where(records.c.source == source).limit(1))
        is None
    ]


def without_value(
    connection: Connection, sources: Sequence[str], fields: Iterable[str]
) -> list[str]:
    """Return the fields that no record of these sources has."""
    own = select(records.c.id).where(records.c.source.in_(sources)).limit(1)
    return [field for field in fields if connection.scalar(_having(own, field)) is None]


def outsiders(kind: str, sources: Collection[str]) -> Select[tuple[int]]:
    """Select the records of other sources than these that were compared."""
    return (
        select(match_records.c.record_id)
        .join(records, records.c.id == match_records.c.record_id)
        .where(match_records.c.kind == kind, records.c.source.not_in(sources))
        .order_by(match_records.c.record_id)
    )


def count_outside(connection: Connection, kind: str, sources: Collection[str]) -> int:
    """Return how many pairs the rules joined of which one record is of another source."""
    if connection.scalar(outsiders(kind, sources).limit(1)) is None:
        return 0  # nearly always, and without a look at every pair
    left, right = records.alias(), records.alias()
    query = (
        select(func.count())
        .select_from(
            matches.join(left, left.c.id == matches.c.left_id).join(
                right, right.c.id == matches.c.right_id
            )
        )
        .where(
            matches.c.kind == kind,
            matches.c.is_match,
            matches.c.decision.is_(None),
            or_(left.c.source.not_in(sources), right.c.source.not_in(sources)),
        )
    )
    return connection.scalar(query) or 0


def _having(query: Select[tuple[int]], field: str) -> Select[tuple[int]]:
    ways = [Field(records.c.data, (field,)).is_filled]  # a name may have a dot in it
    try:
        ways.append(Field(records.c.data, path_of(field)).is_filled)
    except BadOption:  # such as a dot at its end: then it can only be the whole name
        return query.where(ways[0])
    return query.where(or_(*ways))
