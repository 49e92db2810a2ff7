"""Packing pages in a process of its own, so that the event loop need not.

Digest, headers and compression of a page take a tenth of a millisecond, which is more than all the
other links of the chain together, and a thread has to win the interpreter back from a busy loop
after each of them. The process keeps nothing: when it dies, its pages are packed here.
"""

from __future__ import annotations

import marshal
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from longline.http.archive.drafts import Draft, Load, pack_page
from longline.http.archive.packing_process import SIZE
from longline.http.archive.records import About

PROCESS = "longline.http.archive.packing_process"
_BUSY = 8  # pages at a time; who has fewer does not need a process for them
_BROKEN = (OSError, EOFError, ValueError, TypeError)


class Packer:
    """Packs pages: few of them here, many in a process that is started when they first come.

    Made for one thread, which it blocks.
    """

    def __init__(self) -> None:
        self._process: _Process | None = None
        self._is_broken = False

    def pack(self, loads: Sequence[Load]) -> list[Draft]:
        """Return the pages as they will stand in the archive."""
        # The process may take a while to start, may be killed, or may not start at all.
        try:
            if self._process is None and len(loads) >= _BUSY and not self._is_broken:
                self._process = _Process()
            if self._process is not None and self._process.is_ready():
                return self._process.ask(loads)
        except _BROKEN:
            self._is_broken = True
            self.close()
        return [pack_page(load) for load in loads]

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.end()


class _Process:
    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-m", PROCESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # what interrupts the run must not interrupt its last pages
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdin is not None  # noqa: S101  # it was asked for
        assert self._process.stdout is not None  # noqa: S101
        self._questions, self._answers = self._process.stdin, self._process.stdout
        self._is_ready = False
        self._send([])  # whose answer says that it is ready

    def is_ready(self) -> bool:
        if not self._is_ready and select.select([self._answers], [], [], 0)[0]:
            self._receive()
            self._is_ready = True
        return self._is_ready

    def ask(self, loads: Sequence[Load]) -> list[Draft]:
        self._send(loads)
        return self._receive()

    def end(self) -> None:
        """Let it go: it ends by itself when nobody can ask it any more."""
        with suppress(OSError):  # it may be gone already
            self._questions.close()
        self._answers.read()  # to the end, which is its own
        self._answers.close()
        self._process.wait()

    def _send(self, loads: Sequence[Load]) -> None:
        question = marshal.dumps([tuple(load) for load in loads])
        self._questions.write(SIZE.pack(len(question)) + question)
        self._questions.flush()

    def _receive(self) -> list[Draft]:
        size = self._answers.read(SIZE.size)
        if len(size) < SIZE.size:
            raise EOFError
        drafts = marshal.loads(self._answers.read(SIZE.unpack(size)[0]))  # noqa: S302  # ours
        return [Draft(About(*about), *rest) for about, *rest in drafts]
