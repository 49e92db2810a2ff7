"""The redis-server of a home: on loopback, with a password, without persistence."""

from __future__ import annotations

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
from longline.distributed.registry import BrokerUnusable
from longline.limits.backends.redis import permanent_cause
from longline.services.processes import (
    LOOPBACK,
    PRIVATE,
    Launch,
    Service,
    ServiceUnreachable,
    StateFile,
    choose_port,
    launch,
    open_private,
    wait_until_up,
)
from longline.services.programs import Version, parse_version, redis_server

_START_TIMEOUT = 30.0  # seconds
_RESPONSE_TIMEOUT = 2.0  # seconds
# Evicted limits and messages would be worse than a refused command.
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
# Redis 7 can also limit the memory of all clients together; older versions reject the option.
_CLIENTS_CONFIG = "maxmemory-clients 256mb\n"
_CLIENTS_SINCE = (7, 0)
_MAX_MEMORY = 1 << 30  # bytes, and at most a quarter of the machine's


class RedisService(Service):
    """Messages and shared limits; both can be lost, so it can be restarted at any time."""

    name = "redis"
    stop_signals = ((signal.SIGTERM, 10.0),)

    def __init__(self, file: StateFile) -> None:
        super().__init__(file)
        self._folder = file.home / "redis"

    def is_healthy(self) -> bool:
        url = self._file.read().redis_url
        return url is not None and super().is_healthy() and redis_problem(url) is None

    def start(self) -> None:
        self.stop()
        before = self._file.read().redis_url
        # Running workers reconnect when the new server has the address of the last one.
        last = urlsplit(before) if before else None
        password = (last.password if last else None) or secrets.token_urlsafe(32)
        port = choose_port(last.port if last else None)
        url = f"redis://:{password}@{LOOPBACK}:{port}/0"
        program = redis_server()
        config = self._write_config(port, password, parse_version(program.version))
        command = [str(program.path), str(config)]
        log = self._file.home / "logs" / "redis.log"
        plan = Launch(self.name, command, log, port, self._folder, umask=PRIVATE)
        entry = launch(plan, self._file)
        wait_until_up(entry, lambda: redis_problem(url) is None, _START_TIMEOUT)
        self._file.write(replace(self._file.read(), redis_url=url))

    def version(self) -> str | None:
        return redis_version(self._file.read().redis_url or "")

    def _write_config(self, port: int, password: str, version: Version) -> Path:
        self._folder.mkdir(exist_ok=True, mode=0o700)
        path = self._folder / "redis.conf"
        folder = str(self._folder).replace("\\", "\\\\").replace('"', '\\"')
        memory = min(_MAX_MEMORY, psutil.virtual_memory().total // 4)
        text = _CONFIG.format(
            host=LOOPBACK, port=port, password=password, folder=folder, memory=memory
        )
        if version >= _CLIENTS_SINCE:
            text += _CLIENTS_CONFIG
        with open_private(path) as file:
            file.write(text.encode())
        return path


def redis_problem(url: str) -> str | None:
    """Return why the Redis at a URL cannot be used; None when it can."""
    try:
        with connect_redis(url) as redis:
            redis.ping()
    except ValueError:
        return "this is not a Redis URL"  # the text of the error may repeat the password
    except (RedisError, OSError) as error:
        return str(error)
    return None


def check_external_redis(url: str, setting: str) -> None:
    """Check that an external Redis, which `setting` names, can be used.

    Raises:
        BadOption: its URL is invalid.
        BrokerUnusable: authentication failed, or it is not usable.
        ServiceUnreachable: nothing responds there.
    """
    try:
        with connect_redis(url) as redis:
            redis.ping()
    except ValueError:
        problem = "must be a Redis URL such as redis://127.0.0.1:6379/0"
        raise BadOption(setting, problem) from None
    except (RedisError, OSError) as error:
        cause = permanent_cause(error, setting)
        if cause is not None:
            raise BrokerUnusable(redact_server_url(url), cause, setting) from error
        raise ServiceUnreachable("Redis", redact_server_url(url), str(error)) from error


def redis_version(url: str) -> str | None:
    """Return the version of the server at a URL; None if unknown."""
    try:
        with connect_redis(url) as redis:
            info = dict(redis.info("server"))
    except (RedisError, OSError, ValueError):
        return None
    if "valkey_version" in info:  # its redis_version is the compatible one
        return f"valkey {info['valkey_version']}"
    found = info.get("redis_version")
    return None if found is None else str(found)


def connect_redis(url: str, *, protocol: int | None = None) -> Redis:
    """Return a connection that fails fast, for health checks."""
    return Redis.from_url(
        url,
        **({} if protocol is None else {"protocol": protocol}),
        socket_timeout=_RESPONSE_TIMEOUT,
        socket_connect_timeout=_RESPONSE_TIMEOUT,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
    )
