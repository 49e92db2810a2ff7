"""What children tell their supervisor: that a message came, and signs of life while they work.

It goes through a pipe, line by line, so that whether a worker lives can be told while Redis is
away, and costs no request.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Collection, Iterator

from longline.engine.worker import Diary

CAME, TOOK, ALIVE, ENDED = "came", "took", "alive", "ended"
_BEGUN, _DONE = "+", "-"  # an item, by its id
_MOST_KNOWN = 10_000  # items; far more than a child has in flight


class Reports(Diary):
    """The children's end of the pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._is_silent = False
        self._begun: deque[int] = deque(maxlen=_MOST_KNOWN)
        os.set_blocking(pipe, False)

    def fall_silent(self) -> None:
        """Tell nothing more: this process ends, and what it has in flight is to be known.

        Otherwise what is broken off on its way out would count as ended well, and be begun again
        for ever, whichever of it has brought about the end.
        """
        self._is_silent = True

    def tell(self, word: str) -> None:
        """Tell one thing; a supervisor that does not listen holds nobody up."""
        if self._is_silent:
            return
        with contextlib.suppress(OSError):  # so short a line is written whole, or not at all
            os.write(self._pipe, f"{word} {os.getpid()}\n".encode())

    def message_came(self) -> None:
        """Tell that work begins; what was begun for earlier messages is in nobody's hands here."""
        self._begun.clear()
        self.tell(CAME)

    def items_taken(self, items: Collection[int]) -> None:
        """Note that these, by their ids, are in hand and not begun, if they were before, too."""
        kept = [item for item in self._begun if item not in items]
        self._begun = deque(kept, maxlen=_MOST_KNOWN)

    def chunk_taken(self) -> None:
        """Tell that there is something to work on."""
        self.tell(TOOK)

    def item_begun(self, item: int) -> None:
        """Tell what is being worked on, so that it is known if this process dies of it."""
        self._begun.append(item)
        self.tell(f"{_BEGUN}{item}")

    def item_ended(self, item: int) -> None:
        """Tell that it has not died of this one."""
        self.tell(f"{_DONE}{item}")

    def begun_last(self) -> set[int]:
        """Return the items that were begun for this message, whatever has become of them."""
        return set(self._begun)


class Heard:
    """The supervisor's end: what children have told since the worker was started."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._rest = b""
        self._busy: dict[int, float] = {}
        self._in_flight: dict[int, set[int]] = {}
        self.chunks = 0
        """How many were taken."""
        self.last_came: float | None = None
        self.last_taken: float | None = None
        os.set_blocking(pipe, False)

    def listen(self, now: float) -> None:
        """Take in all that was told by now."""
        for word, pid in self._lines():
            if word == ENDED:
                self._busy.pop(pid, None)
                continue
            self._busy[pid] = now
            if word == CAME:
                self.last_came = now
                self._in_flight[pid] = set()
            elif word[0] in (_BEGUN, _DONE):
                self._note_item(pid, word)
            elif word == TOOK:
                self.last_taken = now
                self.chunks += 1

    def busy(self) -> set[int]:
        """Return the children that are at work, as far as they live."""
        self._busy = {pid: at for pid, at in self._busy.items() if _is_alive(pid)}
        return set(self._busy)

    def silent(self, now: float, seconds: float) -> set[int]:
        """Return the children at work whose loop has given no sign of life for so long."""
        return {pid for pid in self.busy() if now - self._busy[pid] > seconds}

    def in_flight(self) -> dict[int, set[int]]:
        """Return the items that each child works on, or worked on when it died."""
        return self._in_flight

    def _note_item(self, pid: int, word: str) -> None:
        items, item = self._in_flight.setdefault(pid, set()), int(word[1:])
        if word[0] == _BEGUN:
            items.add(item)
        else:
            items.discard(item)

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self._pipe)

    def _lines(self) -> Iterator[tuple[str, int]]:
        *lines, self._rest = (self._rest + self._read()).split(b"\n")
        for line in lines:
            word, _, pid = line.decode().partition(" ")
            yield word, int(pid)

    def _read(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(self._pipe, 1 << 16)
        return b""


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
