"""Real proxies on this machine: tinyproxy, microsocks, pproxy and proxy.py, each a process."""

from __future__ import annotations

import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from children import Children

HINT = "tinyproxy and microsocks are not on this machine (Debian: apt install tinyproxy microsocks)"
_PATIENCE = 20.0
_TINYPROXY = """
Port {port}
Listen 127.0.0.1
{bind}
Timeout 600
MaxClients 200
LogLevel Critical
LogFile "{folder}/tinyproxy-{port}.log"
DisableViaHeader No
"""


@dataclass(frozen=True, slots=True)
class RealProxies:
    """Addresses of proxies that work, that a site knows by their own address, and with a login."""

    good: Sequence[str]
    banned: Sequence[str]
    auth: Sequence[str]


def are_installed() -> bool:
    """Return whether the programs that are not Python packages are on this machine."""
    return all(map(shutil.which, ("tinyproxy", "microsocks")))


@contextmanager
def real_proxies(folder: Path, banned_from: Sequence[str]) -> Iterator[RealProxies]:
    """Run ten proxies that work, two that need a login, and one for each address in `banned_from`.

    Those connect from this address.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with Children() as children:
        programs = _Programs(folder, children)
        good = [
            *(programs.proxy_py() for _ in range(2)),
            *(programs.pproxy(scheme) for scheme in ("http", "http", "socks4", "socks5")),
            *(programs.tinyproxy() for _ in range(2)),
            *(programs.microsocks() for _ in range(2)),
        ]
        makers = (programs.microsocks, programs.tinyproxy)
        banned = [makers[number % 2](own) for number, own in enumerate(banned_from)]
        auth = [programs.proxy_py("--basic-auth", "ada:secret") for _ in range(2)]
        programs.wait()
        yield RealProxies(good, banned, auth)


class _Programs:
    """Starts programs and returns their addresses."""

    def __init__(self, folder: Path, children: Children) -> None:
        self._folder = folder
        self._children = children
        self._ports: list[int] = []

    def proxy_py(self, *options: str) -> str:
        port = self._port()
        workers = ("--num-workers", "1", "--num-acceptors", "1", "--log-level", "e")
        where = ("--hostname", "127.0.0.1", "--port", str(port))
        self._children.start([sys.executable, "-m", "proxy", *where, *workers, *options])
        return f"http://127.0.0.1:{port}"

    def pproxy(self, scheme: str) -> str:
        address = f"{scheme}://127.0.0.1:{self._port()}"
        self._children.start([sys.executable, "-m", "pproxy", "-l", address])
        return address

    def tinyproxy(self, own: str | None = None) -> str:
        port = self._port()
        file = self._folder / f"tinyproxy-{port}.conf"
        bind = f"Bind {own}" if own else ""
        file.write_text(_TINYPROXY.format(port=port, bind=bind, folder=self._folder))
        self._children.start([_program("tinyproxy"), "-d", "-c", str(file)])
        return f"http://127.0.0.1:{port}"

    def microsocks(self, own: str | None = None) -> str:
        port = self._port()
        bind = ("-b", own) if own else ()
        where = ("-i", "127.0.0.1", "-p", str(port))
        self._children.start([_program("microsocks"), *where, *bind])
        return f"socks5://127.0.0.1:{port}"

    def wait(self) -> None:
        """Wait until all listen."""
        end = time.monotonic() + _PATIENCE
        for port in self._ports:
            while not _is_listening(port):
                if time.monotonic() > end:
                    message = f"no proxy listens on port {port}"
                    raise RuntimeError(message)
                time.sleep(0.05)

    def _port(self) -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port: int = listener.getsockname()[1]
        self._ports.append(port)
        return port


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(HINT)
    return found


def _is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
