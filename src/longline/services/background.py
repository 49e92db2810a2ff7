"""Processes that `longline up` starts besides Redis, PostgreSQL and workers.

The executor (`longline serve --no-web`) belongs to the home. An Ollama server and a proxy rotator
are started where the settings name them, unless something responds at their address already.

mubeng is the rotator whose list is written from the pool of proxies. What is known about it: it
reads a standard input that is not a terminal as its list, so it gets /dev/null; `-r` above 1 sends
requests through no proxy; it does not see that its file was replaced, so it is started again; it
ends when its list is empty; only SIGINT ends it in order.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import orjson
import psutil

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.errors import BadFile, MissingExtra, UnknownSecret
from longline.core.files import private_opener, replacing
from longline.core.threads import LoopThread
from longline.http.proxies.proxy import Proxy
from longline.services.processes import (
    Launch,
    Service,
    ServiceStatus,
    StartFailed,
    StateFile,
    StopSignals,
    find_process,
    launch,
    lifecycle_lock,
    wait_until_up,
)
from longline.wiring import open_proxy_pool

PROGRAM = (sys.executable, "-m", "longline")
"""The command line, as a command."""
_START_TIMEOUT = 60.0  # seconds
_RESPONSE_TIMEOUT = 2.0  # seconds
_HEARTBEATS = "servers"
MUBENG_ADDRESS = "127.0.0.1:8089"
SILENT = 30.0
"""Seconds without a heartbeat after which a server counts as hung."""


def heartbeat_path(home: Path, pid: int) -> Path:
    """Return the file that `longline serve` touches every few seconds while it works."""
    return home / _HEARTBEATS / str(pid)


def server_pids(home: Path) -> list[int]:
    """Return the processes of `longline serve` that this home has on this machine."""
    with suppress(OSError):
        found = [one.name for one in (home / _HEARTBEATS).iterdir() if one.name.isdigit()]
        return sorted(int(name) for name in found)
    return []


def last_heartbeat(home: Path, pid: int) -> float | None:
    """Return when a server last touched its file, in seconds since the epoch; None: never."""
    with suppress(OSError):
        return heartbeat_path(home, pid).stat().st_mtime
    return None


def process_memory(home: Path) -> dict[str, list[int]]:
    """Return the resident memory of the processes of a home on this machine, by component.

    The components are `server`, `job` (the processes that a server starts), and the services that
    `longline up` has started.
    """
    found: dict[str, list[int]] = defaultdict(list)
    servers = set(server_pids(home))
    for pid in servers:
        _add_memory(found, "server", "job", pid)
    with suppress(BadFile):  # the check of the services reports it
        for entry in StateFile(home.resolve()).read().processes:
            if entry.pid not in servers and find_process(entry) is not None:
                component = entry.name.partition("-")[0]
                _add_memory(found, component, component, entry.pid)
    return dict(found)


def _add_memory(found: dict[str, list[int]], own: str, below: str, pid: int) -> None:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        found[own].append(process.memory_info().rss)
        for child in process.children(recursive=True):
            with suppress(psutil.Error):
                found[below].append(child.memory_info().rss)


class BackgroundService(Service):
    """A process of a home that may be run by another program instead."""

    stop_signals: StopSignals = ((signal.SIGTERM, 10.0),)
    address = ""

    def is_up(self) -> bool:
        """Return whether something responds at its address."""
        raise NotImplementedError

    def command(self) -> Sequence[str]:
        """Return the command that starts it."""
        raise NotImplementedError

    def variables(self) -> Mapping[str, str]:
        """Return its environment variables."""
        return {}

    @property
    def is_external(self) -> bool:
        """Whether something responds that this home has not started."""
        return not super().is_healthy() and self.is_up()

    def is_healthy(self) -> bool:
        return super().is_healthy() and self.is_up()

    def start(self) -> None:
        self.stop()
        log = self._file.home / "logs" / f"{self.name}.log"
        plan = Launch(self.name, self.command(), log, variables=self.variables())
        wait_until_up(launch(plan, self._file), self.is_up, _START_TIMEOUT)

    def describe(self) -> ServiceStatus:
        if self.is_external:
            return ServiceStatus(self.name, is_healthy=True, is_ours=False, address=self.address)
        return super().describe()


class ExecutorService(BackgroundService):
    """`longline serve --no-web`, which runs what is scheduled or submitted."""

    name = "executor"
    stop_signals = ((signal.SIGTERM, 45.0),)  # jobs commit what is in flight

    def __init__(self, file: StateFile, variables: Mapping[str, str] | None = None) -> None:
        super().__init__(file)
        self._variables = variables or {}

    def is_up(self) -> bool:
        entry = self.entry
        if entry is None:
            return False
        beaten_at = last_heartbeat(self._file.home, entry.pid) or 0.0
        return beaten_at >= max(entry.start_time, time.time() - SILENT)

    @property
    def is_external(self) -> bool:
        return False

    def command(self) -> Sequence[str]:
        return (*PROGRAM, "serve", "--no-web", "--home", str(self._file.home))

    def variables(self) -> Mapping[str, str]:
        return self._variables


class OllamaService(BackgroundService):
    """`ollama serve`, a server of language models."""

    name = "ollama"

    def __init__(self, file: StateFile, url: str) -> None:
        super().__init__(file)
        self.address = url

    def is_up(self) -> bool:
        return self.version() is not None

    def version(self) -> str | None:
        with suppress(URLError, OSError, ValueError, KeyError):
            url = f"{self.address.rstrip('/')}/api/version"
            with urlopen(url, timeout=_RESPONSE_TIMEOUT) as response:  # noqa: S310  # of the settings
                return str(orjson.loads(response.read(10_000))["version"])
        return None

    def command(self) -> Sequence[str]:
        program = shutil.which("ollama")
        if program is None:
            raise StartFailed(self.name, "the program ollama is not installed")
        return (program, "serve")

    def variables(self) -> Mapping[str, str]:
        return {"OLLAMA_HOST": urlsplit(self.address).netloc}


class ProxyService(BackgroundService):
    """A proxy rotator of another project, by its command and its address."""

    name = "proxies"

    def __init__(self, file: StateFile, command: str, address: str) -> None:
        super().__init__(file)
        self._command = command
        self.address = address

    def is_up(self) -> bool:
        host, _, port = self.address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), _RESPONSE_TIMEOUT):
                return True
        except OSError:
            return False

    def command(self) -> Sequence[str]:
        return shlex.split(self._command)


class MubengService(ProxyService):
    """mubeng, which sends each request through another proxy of the pool."""

    stop_signals: StopSignals = ((signal.SIGINT, 5.0), (signal.SIGTERM, 5.0))

    def __init__(self, file: StateFile, settings: Settings) -> None:
        super().__init__(file, "", settings.proxy_address or MUBENG_ADDRESS)
        self._settings = settings

    @property
    def list_file(self) -> Path:
        """The list of proxies, with their credentials; readable by its owner only."""
        return self._file.home / "mubeng.txt"

    def command(self) -> Sequence[str]:
        program = shutil.which("mubeng")
        if program is None:
            raise StartFailed(self.name, "the program mubeng is not installed")
        options = ("-f", str(self.list_file), "-m", "random", "-r", "1", "-t", "45s")
        return (program, "-a", self.address, *options)

    def start(self) -> None:
        lines = self.read_lines()
        if not lines:
            problem = "no proxy of the pool is alive; add some, or run `longline proxies refresh`"
            raise StartFailed(self.name, problem)
        self._write(lines)
        super().start()

    def has_other_list(self, lines: Sequence[str]) -> bool:
        """Return whether it runs with other proxies than these."""
        try:
            return self.list_file.read_text("utf-8").splitlines() != list(lines)
        except OSError:
            return True

    def restart(self, lines: Sequence[str]) -> bool:
        """Start it again with these proxies; False: it does not run, or there are none."""
        if not lines or not Service.is_healthy(self):
            return False
        self._write(lines)
        super().start()
        return True

    def read_lines(self) -> list[str]:
        """Return the proxies of the pool that were not found dead, as mubeng reads them.

        Those whose credentials cannot be read are left out.
        """
        with LoopThread("longline-proxies") as loop:  # the caller may have a loop of its own
            return loop.run(self._read_lines())

    async def _read_lines(self) -> list[str]:
        found = []
        async with open_proxy_pool(self._settings, SystemClock()) as pool:
            for one in await pool.all():
                if one.state != "dead" and not one.proxy.is_rotating:
                    with suppress(UnknownSecret, MissingExtra):
                        found.append(_mubeng_line(one.proxy))
        return found

    def _write(self, lines: Sequence[str]) -> None:
        with (
            replacing(self.list_file) as draft,
            open(draft, "x", encoding="utf-8", opener=private_opener) as out,
        ):
            out.writelines(f"{line}\n" for line in lines)


def _mubeng_line(proxy: Proxy) -> str:
    """Return a line of its list; percent-encoded, credentials are not taken for a template."""
    credentials = proxy.read_credentials()
    login = "" if credentials is None else ":".join(quote(one, safe="") for one in credentials)
    return f"{proxy.scheme}://{login}{'@' if login else ''}{proxy.host}:{proxy.port}"


def restart_mubeng(settings: Settings) -> bool:
    """Start mubeng again if the home runs it with another list than that of the pool.

    Raises:
        StartFailed: it does not start.
        ServicesBusy: another process starts or stops the services of the home.
    """
    if settings.proxy_rotator != "mubeng":
        return False
    service = MubengService(StateFile(settings.home.resolve()), settings)
    lines = service.read_lines()
    if not service.has_other_list(lines):
        return False
    with lifecycle_lock(settings.home.resolve()):
        return service.restart(lines)


def configured_services(settings: Settings, file: StateFile) -> list[BackgroundService]:
    """Return the servers that the settings name, in the order of their start."""
    found: list[BackgroundService] = []
    if settings.ollama_url is not None:
        found.append(OllamaService(file, settings.ollama_url))
    if settings.proxy_rotator == "mubeng":
        found.append(MubengService(file, settings))
    if settings.proxy_command is not None and settings.proxy_address is not None:
        found.append(ProxyService(file, settings.proxy_command, settings.proxy_address))
    return found
