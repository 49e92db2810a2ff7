"""A real web server on a free port of this machine: nginx, without privileges, in a folder."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from children import Children

HINT = "nginx is not on this machine; install it (Debian: apt install nginx-light) and try again"
_PATIENCE = 10.0

_CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log crit;
events {{ worker_connections 1024; }}
http {{
    types {{ text/html html; }}
    default_type text/html;
    charset utf-8;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 300;
    keepalive_requests 1000000;
    open_file_cache max=10000 inactive=300;
    log_format arrivals "$msec $request_time $status $server_addr $uri";
    access_log {access_log};
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {zone}
    server {{
        {listen}
        root {root};
        location / {{ {limit} }}
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that nginx enforces; `burst` is that of nginx: requests beyond the first.

    `retry_after` is the Retry-After of a refusal in seconds; None sends none.
    """

    rate: int
    burst: int
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """One line of the access log, with the time of the request in seconds since the epoch."""

    at: float
    status: int
    path: str
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    url: str
    log: Path
    port: int

    def arrivals(self) -> list[Arrival]:
        """Return the received requests, in order."""
        lines = self.log.read_text("utf-8").splitlines() if self.log.is_file() else []
        return sorted((_parse(line) for line in lines), key=lambda arrival: arrival.at)


def find_nginx() -> str | None:
    """Return the path of nginx; Debian installs it outside the PATH of ordinary users."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


@contextlib.contextmanager
def serving(
    root: Path,
    folder: Path,
    *,
    limit: Limit | None = None,
    has_log: bool = False,
    hosts: Sequence[str] = ("127.0.0.1",),
) -> Iterator[Server]:
    """Serve the files below `root`; `folder` is for the server's own files.

    It listens on the same port of each address in `hosts`, and a limit holds for each of them.

    Raises:
        FileNotFoundError: nginx is not installed.
        TimeoutError: it did not start.
    """
    program = find_nginx()
    if program is None:
        raise FileNotFoundError(HINT)
    folder.mkdir(parents=True, exist_ok=True)
    for place in (root, folder, folder.parent):
        place.chmod(0o755)  # started by root, the worker runs as another user
    port = _free_port()
    server = Server(f"http://{hosts[0]}:{port}", folder / "access.log", port)
    config = folder / "nginx.conf"
    config.write_text(
        _CONFIG.format(
            folder=folder,
            root=root,
            listen=" ".join(f"listen {host}:{port};" for host in hosts),
            access_log=f"{server.log} arrivals" if has_log else "off",
            zone=_zone(limit),
            limit=_location(limit),
        )
    )
    with Children() as children:
        children.start([program, "-p", str(folder), "-c", str(config), "-e", "stderr"])
        _wait_for(hosts[0], port)
        yield server


def _zone(limit: Limit | None) -> str:
    if limit is None:
        return ""
    zone = f"limit_req_zone $server_addr zone=site:1m rate={limit.rate}r/s;"
    # A header with an empty value is not sent: only refusals ask for a pause.
    pause = f'map $status $pause {{ 429 "{limit.retry_after or ""}"; default ""; }}'
    return f"{zone} limit_req_status 429; {pause}"


def _location(limit: Limit | None) -> str:
    if limit is None:
        return ""
    return f"limit_req zone=site burst={limit.burst} nodelay; add_header Retry-After $pause always;"


def _parse(line: str) -> Arrival:
    ended, took, status, host, path = line.split(" ", 4)
    return Arrival(float(ended) - float(took), int(status), path, host)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _wait_for(host: str, port: int) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0):
            return
        time.sleep(0.02)
    message = "nginx did not start"
    raise TimeoutError(message)
