"""A server that reports an old Redis version and supports no other command."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION = b"# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\n"


class _Answers(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while line := self.rfile.readline():
            if not line.startswith(b"*"):
                return
            words = [self._word() for _ in range(int(line[1:]))]
            self.wfile.write(_answer(words[0].upper()))

    def _word(self) -> bytes:
        size = int(self.rfile.readline()[1:])
        return self.rfile.read(size + 2)[:-2]


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextmanager
def old_redis() -> Iterator[int]:
    """Serve on a free port from a thread; yield the port."""
    with _Server(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()


def _answer(command: bytes) -> bytes:
    if command == b"INFO":
        return b"$%d\r\n%s\r\n" % (len(_VERSION), _VERSION)
    if command == b"PING":
        return b"+PONG\r\n"
    if command in (b"CLIENT", b"SELECT"):
        return b"+OK\r\n"
    # Word for word as the real one says it: HELLO came with version 6.
    return b"-ERR unknown command `%s`, with args beginning with: \r\n" % command
