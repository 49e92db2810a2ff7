"""A connection whose answer may cost only so much processor time to read.

An answer in chunks of four bytes, or one after a flood of `100 Continue`, costs a hundred times as
much to read as an ordinary one of the same size, and everything else in the process waits
meanwhile.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from aiohttp.client_proto import ResponseHandler

from longline.errors import BadAnswer, FetchError

_SECONDS = 0.4  # of processor time for any answer; a page of 1 MB takes some milliseconds
_SECONDS_PER_BYTE = 15e-9  # received; gzip takes a quarter of both together, plain text far less


@dataclass(slots=True)
class Asked:
    """The request that a connection serves, and why the connection was refused to it, if it was."""

    url: str
    refusal: FetchError | None = None


asked: ContextVar[Asked] = ContextVar("asked")
"""What the present task has asked for."""


class BudgetedConnection(ResponseHandler):
    """aiohttp's side of a connection; it closes when its answer costs too much to read."""

    _asked: Asked | None = None
    _spent = 0.0
    _received = 0

    def set_response_params(self, **how: Any) -> None:
        """Begin another answer."""
        self._asked, self._spent, self._received = asked.get(), 0.0, 0
        super().set_response_params(**how)

    def data_received(self, data: bytes) -> None:
        """Read what came, and close if the answer has cost too much."""
        began = time.thread_time()
        super().data_received(data)
        self._spent += time.thread_time() - began
        self._received += len(data)
        if self._spent > _SECONDS + self._received * _SECONDS_PER_BYTE:
            self._give_up()

    def _give_up(self) -> None:
        if self._asked is not None and self._asked.refusal is None and self.transport is not None:
            cost = f"{self._received} bytes took {self._spent:.1f} s of processor time"
            self._asked.refusal = BadAnswer(self._asked.url, f"it costs too much to read: {cost}")
            self.transport.abort()  # what waits for the answer hears of it
