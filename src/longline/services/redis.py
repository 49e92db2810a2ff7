"""A redis-server of a home: on loopback, with a password, and nothing on disk."""

from __future__ import annotations

import os
import secrets
import signal
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from longline.core.errors import BadOption
from longline.core.redaction import redact_server_url
from longline.distributed.errors import BrokerUnusable
from longline.limits.backends.redis_connection import permanent_cause
from longline.services.advisories import Version, parse_version
from longline.services.base import LOOPBACK, Part, on_a_port
from longline.services.errors import ServiceUnreachable
from longline.services.processes import (
    PRIVATE,
    Launch,
    end,
    launch,
    living,
    memory_of,
    redis_server,
    wait_until_up,
)
from longline.services.record import RecordFile

_START = 30.0  # seconds
ENDING = ((signal.SIGTERM, 10.0),)
_ANSWER = 2.0  # seconds for an answer from this machine
# Limits and messages that are thrown away at will would be worse than a refused command.
_CONFIG = """\
bind {host}
port {port}
protected-mode yes
requirepass {password}
daemonize no
save ""
appendonly no
maxmemory {memory}
maxmemory-policy noeviction
client-output-buffer-limit normal 64mb 16mb 60
dir "{folder}"
"""
# Redis 7 can also limit what all clients together take; older ones do not know the word.
_CLIENTS_CONFIG = "maxmemory-clients 256mb\n"
_CLIENTS_SINCE = (7, 0)
_MOST_MEMORY = 1 << 30  # bytes, if that is not more than a quarter of the machine's


class RedisService:
    """Messages and shared limits; it may forget all of it, so it is started anew without fear."""

    name = "redis"

    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self._folder = file.home / "redis"

    def is_healthy(self) -> bool:
        record = self._file.read()
        entry = record.entry(self.name)
        return (
            entry is not None
            and record.redis_url is not None
            and living(entry) is not None
            and problem_of(record.redis_url) is None
        )

    def start(self) -> None:
        self.stop()
        before = self._file.read().redis_url
        # Workers that still live find a server again that is where the last one was.
        last = urlsplit(before) if before else None
        password = (last.password if last else None) or secrets.token_urlsafe(32)
        on_a_port(last.port if last else None, lambda port: self._start_on(port, password))

    def _start_on(self, port: int, password: str) -> None:
        url = f"redis://:{password}@{LOOPBACK}:{port}/0"
        program = redis_server()
        config = self._write_config(port, password, parse_version(program.version))
        command = [str(program.path), str(config)]
        log = self._file.home / "logs" / "redis.log"
        entry = launch(
            Launch(self.name, command, log, port, self._folder, umask=PRIVATE), self._file
        )
        wait_until_up(entry, lambda: problem_of(url) is None, _START)
        self._file.write(replace(self._file.read(), redis_url=url))

    def stop(self) -> None:
        entry = self._file.read().entry(self.name)
        if entry is not None:
            end([entry], *ENDING)

    def describe(self) -> Part:
        record = self._file.read()
        entry = record.entry(self.name)
        port = None if entry is None else entry.port
        is_healthy = self.is_healthy()
        is_there = entry is not None and living(entry) is not None
        return Part(
            self.name,
            is_healthy=is_healthy,
            is_ours=True,
            address=f"{LOOPBACK}:{port}",
            since=entry.start_time if entry and is_there else None,
            pid=entry.pid if entry and is_there else None,
            port=port,
            version=version_of(record.redis_url) if is_healthy and record.redis_url else None,
            memory_bytes=None if entry is None else memory_of(entry),
            log=None if entry is None else entry.log,
        )

    def _write_config(self, port: int, password: str, version: Version) -> Path:
        self._folder.mkdir(exist_ok=True, mode=0o700)
        path = self._folder / "redis.conf"
        path.unlink(missing_ok=True)
        folder = str(self._folder).replace("\\", "\\\\").replace('"', '\\"')
        memory = min(_MOST_MEMORY, psutil.virtual_memory().total // 4)
        text = _CONFIG.format(
            host=LOOPBACK, port=port, password=password, folder=folder, memory=memory
        )
        if version >= _CLIENTS_SINCE:
            text += _CLIENTS_CONFIG
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        return path


def problem_of(url: str) -> str | None:
    """Return why the Redis at an address does not answer; None when it does."""
    try:
        with connected(url) as redis:
            redis.ping()
    except ValueError:
        return "that is not an address of Redis"  # the text of the error may repeat the password
    except (RedisError, OSError) as error:
        return str(error)
    return None


def check_foreign(url: str, setting: str) -> None:
    """See that a Redis that somebody else runs can be used; `setting` names it.

    Raises:
        BadOption: that is no address of Redis.
        BrokerUnusable: it is there and does not let us in.
        ServiceUnreachable: nobody is there.
    """
    try:
        with connected(url) as redis:
            redis.ping()
    except ValueError:
        problem = "must be an address of Redis, such as redis://127.0.0.1:6379/0"
        raise BadOption(setting, problem) from None
    except (RedisError, OSError) as error:
        cause = permanent_cause(error, setting)
        if cause is not None:
            raise BrokerUnusable(redact_server_url(url), cause, setting) from error
        raise ServiceUnreachable("Redis", redact_server_url(url), str(error)) from error


def version_of(url: str) -> str | None:
    """Return the version of the server at an address; None when it does not say."""
    try:
        with connected(url) as redis:
            told = dict(redis.info("server"))
    except (RedisError, OSError, ValueError):
        return None
    if "valkey_version" in told:  # as redis_version it gives the one it is compatible with
        return f"valkey {told['valkey_version']}"
    found = told.get("redis_version")
    return None if found is None else str(found)


def connected(url: str) -> Redis:
    """Return a connection that gives up soon: whoever looks at health does not wait."""
    return Redis.from_url(
        url,
        socket_timeout=_ANSWER,
        socket_connect_timeout=_ANSWER,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
    )
