"""The process that packs pages: reads lists of them, and answers with their drafts.

`packing.py` starts it. It keeps nothing, and ends when nobody can ask it any more.
"""

from __future__ import annotations

import marshal
import os
import signal
import struct
import sys
from contextlib import suppress
from typing import BinaryIO

from longline.http.archive.drafts import Load, pack_page

SIZE = struct.Struct("!Q")
"""What stands before each message: its length.

A message is plain values, written by `marshal`: unlike pickle it can make nothing but those.
"""


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Pack what comes until nothing more can come."""
    while len(size := questions.read(SIZE.size)) == SIZE.size:
        loads = marshal.loads(questions.read(SIZE.unpack(size)[0]))  # noqa: S302  # from ourselves
        drafts = [pack_page(Load(*load)) for load in loads]
        answer = marshal.dumps([(tuple(one.about), *one[1:]) for one in drafts])
        answers.write(SIZE.pack(len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # it ends with the one it works for, not before
    with suppress(BrokenPipeError):
        serve(sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)  # at once: somebody waits for its end, and there is nothing to tidy up
