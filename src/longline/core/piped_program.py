"""A program of ours in a child process: one question at a time through pipes, each answered."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO

SIZE = struct.Struct("!Q")
"""The length before each question and each answer."""


class PipedProgram:
    """Runs a module by its path, in a process that is started when first needed.

    The module reads questions from stdin until it ends, so it ends with this process. It is started
    by path: as a module it would import the whole package first.
    """

    def __init__(self, path: str, *, timeout: float) -> None:
        """Take the path of the module, and the seconds that an answer may take."""
        self._command = (sys.executable, "-P", path)
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, question: bytes) -> bytes | None:
        """Return the answer; block until then. None when the program has died or takes too long."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(  # noqa: S603  # our own module
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            answer = self._exchange(self._process, question)
            if answer is None:
                self._kill()
            return answer

    def close(self) -> None:
        """Kill the process, if there is one."""
        with self._lock:
            self._kill()

    def _exchange(self, process: subprocess.Popen[bytes], question: bytes) -> bytes | None:
        if process.stdin is None or process.stdout is None:
            return None
        killer = threading.Timer(self._timeout, process.kill)
        killer.daemon = True
        killer.start()
        try:
            process.stdin.write(SIZE.pack(len(question)))
            process.stdin.write(question)
            process.stdin.flush()
            return read_framed(process.stdout)
        except OSError:
            return None
        finally:
            killer.cancel()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(OSError):
                self._process.communicate(timeout=5)
            self._process = None


def read_framed(stream: IO[bytes]) -> bytes | None:
    """Return the bytes after the next length; None when the stream has ended."""
    size = stream.read(SIZE.size)
    if len(size) < SIZE.size:
        return None
    (length,) = SIZE.unpack(size)
    text = stream.read(length)
    return text if len(text) == length else None
