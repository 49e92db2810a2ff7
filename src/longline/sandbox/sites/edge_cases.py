"""Difficult URLs of the practice API; each always behaves the same way."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any

from aiohttp import web

from longline.sandbox.seeded import Picks, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import Rows
from longline.sandbox.templates.routes import reply

_COUNT = 24
_PAUSE = 5  # seconds in Retry-After


class Mood(StrEnum):
    """The behaviour of one errand."""

    FINE = "fine"
    FLAKY = "flaky"
    """500 twice, then fine."""
    BUSY = "busy"
    """200 with an error in it once, then fine."""
    THROTTLED = "throttled"
    """429 with Retry-After once, then fine."""
    OLD = "old"
    """410 with everything in it, always."""
    GONE = "gone"
    """404, always."""
    WITHDRAWN = "withdrawn"
    """200 and a body that says there is nothing to read, always."""
    CORRUPT = "corrupt"
    """200 and a body that says it is damaged, always."""


_MOODS = tuple(Mood)
_STUMBLES = {Mood.FLAKY: 2, Mood.BUSY: 1, Mood.THROTTLED: 1}


class Errands:
    """A list of ids, and an address for each."""

    def __init__(self, seed: int) -> None:
        self._rows = [_errand(seed, number) for number in range(1, _COUNT + 1)]
        self._asked: Counter[int] = Counter()

    def routes(self) -> list[web.RouteDef]:
        """Return the addresses and who answers there."""
        return [
            web.get("/rest/errands", self._list_errands),
            web.get(r"/rest/errands/{id:\d+}", self._one),
        ]

    def rows(self) -> Rows:
        """Return the records that can be read, which are not all that are listed."""
        lost = {Mood.GONE, Mood.WITHDRAWN, Mood.CORRUPT}
        return [row for row in self._rows if mood_of(row["id"]) not in lost]

    async def _list_errands(self, _request: web.Request) -> web.Response:
        return reply({"errands": [{"id": row["id"]} for row in self._rows]})

    async def _one(self, request: web.Request) -> web.Response:
        number = int(request.match_info["id"])
        if not 1 <= number <= len(self._rows):
            return reply({"error": "there is no such errand"}, status=404)
        mood = mood_of(number)
        if self._asked[number] < _STUMBLES.get(mood, 0):
            self._asked[number] += 1
            return _stumble(mood)
        status = 410 if mood is Mood.OLD else 200
        return _settled(mood) or reply({"errand": self._rows[number - 1]}, status=status)


def mood_of(errand: int) -> Mood:
    """Return the behaviour of this errand."""
    return _MOODS[errand % len(_MOODS)]


def _stumble(mood: Mood) -> web.Response:
    if mood is Mood.FLAKY:
        return reply({"error": "out of order"}, status=500)
    if mood is Mood.BUSY:
        return reply({"error": "busy", "retry_after": _PAUSE})
    return reply({"error": "slow down"}, status=429, headers={"Retry-After": str(_PAUSE)})


def _settled(mood: Mood) -> web.Response | None:
    if mood is Mood.GONE:
        return reply({"error": "there is no such errand"}, status=404)
    if mood is Mood.WITHDRAWN:
        return reply({"errand": None, "state": "withdrawn"})
    if mood is Mood.CORRUPT:
        return reply({"errand": None, "error": "corrupt"})
    return None


def _errand(seed: int, number: int) -> dict[str, Any]:
    picks = Picks(draw(seed, "errand", number))
    return {"id": number, "to": picks.of(words.PLACES), "for": picks.of(words.ENDINGS)}
