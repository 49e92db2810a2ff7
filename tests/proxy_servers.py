"""Real proxies for tests: pproxy and proxy.py in processes of their own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.servers import free_port, until


@dataclass(frozen=True)
class ProxyServers:
    """Proxies that run: one that speaks HTTP, SOCKS4 and SOCKS5, and one with a login.

    The second adds Via to requests, and needs the user `ada` with the password `Secr3t-9`.
    """

    any_port: int
    login_port: int
    dead_port: int

    @property
    def alive(self) -> Sequence[str]:
        """Addresses that work without a login."""
        return [f"{scheme}://127.0.0.1:{self.any_port}" for scheme in ("http", "socks4", "socks5")]

    @property
    def dead(self) -> str:
        """An address at which nothing listens."""
        return f"http://127.0.0.1:{self.dead_port}"

    @property
    def with_login(self) -> str:
        """A line with user name and password."""
        return f"http://ada:Secr3t-9@127.0.0.1:{self.login_port}"


@contextlib.contextmanager
def proxies_running() -> Iterator[ProxyServers]:
    """Run the proxies."""
    servers = ProxyServers(free_port(), free_port(), free_port())
    anything = f"http+socks4+socks5://127.0.0.1:{servers.any_port}"
    login = ["--hostname", "127.0.0.1", "--port", str(servers.login_port)]
    login += ["--basic-auth", "ada:Secr3t-9", "--num-workers", "1", "--num-acceptors", "1"]
    commands = [
        [sys.executable, "-m", "pproxy", "-l", anything],
        [sys.executable, "-m", "proxy", *login, "--log-level", "e"],
    ]
    running = [
        subprocess.Popen(one, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for one in commands
    ]
    try:
        for port in (servers.any_port, servers.login_port):
            until(lambda port=port: _is_up(port), f"a proxy on port {port}")  # type: ignore[misc]  # bound now
        yield servers
    finally:
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_up(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
