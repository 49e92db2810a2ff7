"""Digests and compression of archived responses; also the program that does it for fast jobs.

It imports nothing of longline, so that the program starts fast.
"""

from __future__ import annotations

import base64
import hashlib
import marshal
import os
import signal
import struct
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO

from isal import isal_zlib

GZIP = zlib.MAX_WBITS + 16
"""The window bits of a gzip member."""
_LEVEL = 1
_SIZE = struct.Struct("!Q")  # the framing of core/piped_program.py

Unpacked = tuple[str, str, bytes, bytes]
"""A response: the header of its record before and after the digest, its HTTP head, its body."""


def digest_of(body: bytes) -> str:
    """Return the digest of a body as WARC readers expect it.

    SHA-256, since a site could construct two bodies with one SHA-1.
    """
    return f"sha256:{base64.b32encode(hashlib.sha256(body).digest()).decode()}"


def compress(record: bytes) -> bytes:
    """Return a record as a gzip member."""
    # Five times as fast as level 1 of zlib, and not larger.
    return isal_zlib.compress(record, _LEVEL, GZIP)


def pack_responses(responses: Sequence[Unpacked]) -> list[tuple[str, bytes]]:
    """Return the digest of each body, and its record as a gzip member."""
    packed = []
    for before, after, head, body in responses:
        digest = digest_of(body)
        header = f"{before}{digest}{after}".encode()
        packed.append((digest, compress(b"%b%b%b\r\n\r\n" % (header, head, body))))
    return packed


def _serve(questions: BinaryIO, answers: BinaryIO) -> None:
    while len(size := questions.read(_SIZE.size)) == _SIZE.size:
        responses = marshal.loads(questions.read(_SIZE.unpack(size)[0]))  # noqa: S302  # our parent's
        answer = marshal.dumps(pack_responses(responses))
        answers.write(_SIZE.pack(len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)  # it ends with its parent, not before
    with suppress(BrokenPipeError):
        _serve(sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)
