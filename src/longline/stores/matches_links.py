"""Reading pairs: all of them, or what some records are joined with, over however many others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, and_, or_, select

from longline.stores.matches_words import CONFIRMED, Link
from longline.stores.schema import matches

_IN_ONE_STATEMENT = 5000  # values; a stock SQLite takes 32,766
_LINK = (
    matches.c.left_id,
    matches.c.right_id,
    matches.c.score,
    matches.c.is_match,
    matches.c.decision,
)
_JOINING = or_(
    matches.c.decision == CONFIRMED, and_(matches.c.decision.is_(None), matches.c.is_match)
)


def decided(connection: Connection, kind: str, ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return the pairs of these records that a person decided on."""
    return [
        ends_of(link) for link in _touching(connection, kind, ids, matches.c.decision.is_not(None))
    ]


def links_in(connection: Connection, kind: str) -> list[Link]:
    """Return all pairs, by the ids of their records."""
    query = select(*_LINK).where(matches.c.kind == kind)
    rows = connection.execute(query.order_by(matches.c.left_id, matches.c.right_id))
    return [Link(*row) for row in rows]


def links_around(
    connection: Connection, kind: str, ids: Iterable[int], *, most: int | None = None
) -> list[Link]:
    """Return the pairs among these records and all that they are joined with, step by step."""
    seen, edge = set(ids), set(ids)
    while edge and (most is None or len(seen) <= most):
        near = {
            one for link in _touching(connection, kind, edge, _JOINING) for one in ends_of(link)
        }
        edge = near - seen
        seen |= edge
    links = _touching(connection, kind, seen)
    return [link for link in links if link.left in seen and link.right in seen]


def joined(links: Iterable[Link]) -> list[set[int]]:
    """Return the records that links join, directly or over others."""
    groups: dict[int, set[int]] = {}
    for link in links:
        if link.joins:
            one, other = (groups.setdefault(end, {end}) for end in ends_of(link))
            small, large = sorted((one, other), key=len)
            large |= small
            groups |= dict.fromkeys(small, large)
    return list({id(group): group for group in groups.values()}.values())


def slices(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    """Yield ids in portions that one statement takes."""
    return (ids[at : at + _IN_ONE_STATEMENT] for at in range(0, len(ids), _IN_ONE_STATEMENT))


def ends_of(link: Link) -> tuple[int, int]:
    """Return the ids of both records."""
    return link.left, link.right


def _touching(
    connection: Connection, kind: str, ids: Iterable[int], *more: ColumnElement[bool]
) -> list[Link]:
    found: dict[tuple[int, int], Link] = {}
    for some in slices(sorted(ids)):
        # Two statements, since each has an index of its own and OR would use neither.
        for column in (matches.c.left_id, matches.c.right_id):
            query = select(*_LINK).where(matches.c.kind == kind, column.in_(some), *more)
            found |= {(row[0], row[1]): Link(*row) for row in connection.execute(query)}
    return [found[ends] for ends in sorted(found)]
