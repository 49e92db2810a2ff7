"""Values on Redis that are read, changed here, and written only if nobody was faster."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from longline.errors import RedisUnreachable, StoreBusy
from longline.resilience.keepers.cells import Answer, Cells, State, Step
from longline.resilience.keepers.redis_door import RedisDoor, Reply
from longline.resilience.line import Line

_TRIES = 200
_EAGER = 5  # tries after which one leaves the others some time
_LONGEST_PAUSE = 0.02


class RedisCells(Cells[State]):
    """Values as JSON, each with the mark of who wrote it last.

    Args:
        door: The way to Redis.
        room: What keeps the values of one keeper apart from the others'.
        kind: The dataclass that a value is.
        lifetime: How many seconds a value lives, told the value and the time.
        is_patient: Whether to wait for a Redis that does not answer.
    """

    def __init__(
        self,
        door: RedisDoor,
        room: str,
        kind: type[State],
        lifetime: Callable[[State, float], float],
        *,
        is_patient: bool = True,
    ) -> None:
        self._door = door
        self._room = room
        self._kind = kind
        self._lifetime = lifetime
        self._is_patient = is_patient
        self._lines: dict[str, Line] = {}

    async def change(self, name: str, step: Step[State, Answer]) -> Answer:
        # Tasks of one process would only get in each other's way.
        async with self._lines.setdefault(name, Line()).turn():
            return await self._change(name, step)

    async def read(self, name: str) -> tuple[State | None, float]:
        reply = await self._call(name)
        return self._decoded(name, reply.answers[1]), reply.now

    async def all(self) -> dict[str, State]:
        names = await self._door.names(self._room)
        values = {name: (await self.read(name))[0] for name in names}
        return {name: value for name, value in values.items() if value is not None}

    async def forget(self, name: str) -> bool:
        return await self._door.remove(self._door.key(self._room, name))

    async def _change(self, name: str, step: Step[State, Answer]) -> Answer:
        begun = asyncio.get_running_loop().time()
        reply = await self._call(name)
        for attempt in range(_TRIES):
            held = reply.answers[1]
            value = self._decoded(name, held)
            changed, answer = step(value, reply.now)
            if changed is None or changed == value:
                return answer
            reply = await self._call(name, *self._words(held, changed, reply.now))
            if reply.answers[0]:  # it is written
                return answer
            if attempt >= _EAGER:
                await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))  # noqa: S311 - no secret
        raise StoreBusy(self._door.address, asyncio.get_running_loop().time() - begun)

    async def _call(self, name: str, *words: str) -> Reply:
        keys = [self._door.key(self._room, name)]
        return await self._door.call("cell", keys, *words, is_patient=self._is_patient)

    def _words(self, held: str, value: State, now: float) -> tuple[str, str, str, str]:
        lifetime = str(max(1, int(1000 * self._lifetime(value, now))))
        return held.partition(" ")[0], uuid4().hex, _encode(value), lifetime

    def _decoded(self, name: str, held: str) -> State | None:
        if not held:
            return None
        try:
            return self._kind(**json.loads(held.partition(" ")[2]))
        except (TypeError, ValueError) as error:
            key = self._door.key(self._room, name)
            problem = f"what it holds under {key} cannot be read; delete that key to begin anew"
            raise RedisUnreachable(self._door.address, problem) from error


def _encode(value: Any) -> str:
    return json.dumps(asdict(value))
