"""Processes that `longline up` starts besides Redis, PostgreSQL and workers.

The executor (`longline serve --no-web`) belongs to the home. An Ollama server and a proxy rotator
are started where the settings name them, unless something responds at their address already.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import orjson

from longline.config.settings import Settings
from longline.services.processes import (
    Launch,
    Service,
    ServiceStatus,
    StartFailed,
    StateFile,
    launch,
    wait_until_up,
)

PROGRAM = (sys.executable, "-m", "longline")
"""The command line, as a command."""
_START_TIMEOUT = 60.0  # seconds
_RESPONSE_TIMEOUT = 2.0  # seconds
_HEARTBEATS = "servers"
_SILENT = 30.0  # seconds without a heartbeat after which a server counts as hung


def heartbeat_path(home: Path, pid: int) -> Path:
    """Return the file that `longline serve` touches every few seconds while it works."""
    return home / _HEARTBEATS / str(pid)


class BackgroundService(Service):
    """A process of a home that may be run by another program instead."""

    stop_signals = ((signal.SIGTERM, 10.0),)
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
        with suppress(OSError):
            beaten_at = heartbeat_path(self._file.home, entry.pid).stat().st_mtime
            return beaten_at >= max(entry.start_time, time.time() - _SILENT)
        return False

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


def configured_services(settings: Settings, file: StateFile) -> list[BackgroundService]:
    """Return the servers that the settings name, in the order of their start."""
    found: list[BackgroundService] = []
    if settings.ollama_url is not None:
        found.append(OllamaService(file, settings.ollama_url))
    if settings.proxy_command is not None and settings.proxy_address is not None:
        found.append(ProxyService(file, settings.proxy_command, settings.proxy_address))
    return found
