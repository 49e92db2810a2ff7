"""A way to a server that is cut at the worst moments: around a COMMIT."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from enum import Enum, auto


class Cut(Enum):
    """When the next connection that commits is cut."""

    NEVER = auto()
    BEFORE = auto()
    """The server never hears of the COMMIT."""
    AFTER = auto()
    """The server has committed, and its answer is lost."""


class CuttingProxy:
    """Passes on what it is sent, in both directions, until `cut` is set."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.cut = Cut.NEVER
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._server))
        answers = threading.Thread(target=_copy, args=(server, client), daemon=True)
        answers.start()
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if b"COMMIT\x00" in data and self.cut is not Cut.NEVER:
                    self._cut(data, client, server)
                    return
                server.sendall(data)
        _shut(server, client)

    def _cut(self, data: bytes, client: socket.socket, server: socket.socket) -> None:
        cut, self.cut = self.cut, Cut.NEVER
        self.cuts += 1
        # Its answers are not passed on any more.
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        if cut is Cut.AFTER:
            server.sendall(data)
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_WR)  # it reads all that was sent before it hangs up
        else:
            _shut(server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            with contextlib.suppress(OSError):  # read on: the server must be able to finish
                target.sendall(data)
    _shut(source, target)


def _shut(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextlib.contextmanager
def proxy_to(port: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
