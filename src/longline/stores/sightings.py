"""Sightings: when a site was seen as a record says, where that is not when it was stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, case, update

from longline.stores.bulk import BulkUpdate
from longline.stores.schema import records


@dataclass(frozen=True, slots=True)
class Sighting:
    """The moment at which a record was seen at its site."""

    source: str
    key: str
    at: float


_SEE = BulkUpdate(
    update(records)
    .where(records.c.source == bindparam("b_source"), records.c.key == bindparam("b_key"))
    .values(
        seen_at=bindparam("b_seen"),
        first_seen_at=case(
            (records.c.first_seen_at > bindparam("b_seen"), bindparam("b_seen")),
            else_=records.c.first_seen_at,
        ),
    )
)


def date_back(connection: Connection, sightings: Iterable[Sighting]) -> None:
    """Let records say when they were seen.

    `changed_at` stays the moment from which they are here: whoever asks for what is new since
    then must find them.
    """
    _SEE.run(
        connection,
        [{"b_source": one.source, "b_key": one.key, "b_seen": one.at} for one in sightings],
    )
