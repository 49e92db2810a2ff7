"""A stand-in for mubeng with its flags and its oddities, which really sends requests on.

Like mubeng, it reads a standard input that is not a terminal or /dev/null as its list, ends when
its list is empty, reads its list once, ends in order only on SIGINT, and answers 502 with the text
"Proxy server error" to whatever fails behind it. Its upstream proxies are HTTP ones.
"""

from __future__ import annotations

import argparse
import base64
import os
import random
import select
import signal
import socket
import stat
import sys
import threading
from pathlib import Path
from types import FrameType
from urllib.parse import unquote, urlsplit

_ERROR = b"Proxy server error"


def read_flags() -> argparse.Namespace:
    """Return the flags that a rotator is started with."""
    flags = argparse.ArgumentParser()
    for name in ("-a", "-f", "-A", "-t", "-m", "-o"):
        flags.add_argument(name)
    flags.add_argument("-r", type=int, default=1)
    for name in ("-w", "-s", "-v", "-d"):
        flags.add_argument(name, action="store_true")
    return flags.parse_args()


def read_list(file: str) -> list[str]:
    """Return the proxies, of the standard input if that is not a character device."""
    if not stat.S_ISCHR(os.fstat(0).st_mode):
        return sys.stdin.read().split()
    return Path(file).read_text("utf-8").split()


def handle(client: socket.socket, proxies: list[str]) -> None:
    """Send one request to a proxy of the list, and its response back."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = client.recv(65536)
        if not piece:
            client.close()
            return
        head += piece
    chosen = urlsplit(random.choice(proxies))
    try:
        upstream = socket.create_connection((chosen.hostname or "", chosen.port or 0), 10)
    except OSError:
        headers = (
            f"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nContent-Length: {len(_ERROR)}"
        )
        client.sendall(f"{headers}\r\nConnection: close\r\n\r\n".encode() + _ERROR)
        client.close()
        return
    line, _, rest = head.partition(b"\r\n")
    login = b""
    if chosen.username is not None:
        words = f"{unquote(chosen.username)}:{unquote(chosen.password or '')}".encode()
        login = b"Proxy-Authorization: Basic " + base64.b64encode(words) + b"\r\n"
    upstream.sendall(line + b"\r\n" + login + b"Connection: close\r\n" + rest)
    pump(client, upstream)


def pump(client: socket.socket, upstream: socket.socket) -> None:
    """Copy what each side sends, until one closes."""
    with client, upstream:
        while ready := select.select([client, upstream], [], [], 30)[0]:
            for one in ready:
                piece = one.recv(65536)
                if not piece:
                    return
                (upstream if one is client else client).sendall(piece)


def main() -> None:
    """Serve until SIGINT."""
    flags = read_flags()
    proxies = read_list(flags.f)
    if not proxies or flags.r != 1:
        sys.exit("open list: has no valid proxy URLs")

    def leave(_number: int, _frame: FrameType | None) -> None:
        os._exit(0)

    signal.signal(signal.SIGINT, leave)
    host, _, port = flags.a.rpartition(":")
    with socket.create_server((host, int(port))) as server:
        while True:
            client, _ = server.accept()
            threading.Thread(target=handle, args=(client, proxies), daemon=True).start()


if __name__ == "__main__":
    main()
