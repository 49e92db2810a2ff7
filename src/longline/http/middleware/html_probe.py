"""The process that parses suspicious HTML first, so that it cannot harm the run.

`html_guard.py` starts it, and sends a length and a text for each page. The reply is one byte. A
page that takes too long or too much memory kills the process instead, by limits of the kernel. It
imports nothing of longline, so that it starts fast.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from selectolax.lexbor import LexborHTMLParser

SIZE = struct.Struct("!Q")
GOOD = b"+"
BAD = b"-"
_SECONDS = 0.05  # of processor time, for any page
_SECONDS_PER_BYTE = 1e-7  # about ten times what an ordinary page takes
_MOST_SECONDS = 1.0
_STACK = 1024 * 1024  # bytes; the parent may have used some of its eight times as much
_DEEPEST = 1_000
_TOO_DEEP = ">".join("*" * (_DEEPEST + 1))
_BYTES = 192 * 1024 * 1024
"""Memory that the tree of one page may take."""


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Parse texts until the input ends."""
    while len(size := questions.read(SIZE.size)) == SIZE.size:
        text = questions.read(SIZE.unpack(size)[0])
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + _BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
        seconds = min(_SECONDS + len(text) * _SECONDS_PER_BYTE, _MOST_SECONDS)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        is_good = _is_parsable(text)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(SIZE.pack(1) + (GOOD if is_good else BAD))
        answers.flush()


def _is_parsable(text: bytes) -> bool:
    tree = LexborHTMLParser(text)
    if tree.css_first(_TOO_DEEP) is not None:
        return False
    _ = tree.html  # recursive where templates are nested
    return True


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK, resource.RLIM_INFINITY))
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)  # it ends with its parent, not before
    with suppress(BrokenPipeError):
        serve(sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)
