"""Copy events to a Redis stream, each once and in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from longline.core.errors import BadOption, LonglineError
from longline.core.model import Event
from longline.core.redaction import redact_server_url
from longline.engine.subscribers import cloud_event
from longline.limits.backends.redis import REDIS_URL, permanent_cause

_TIMEOUT = 5.0  # seconds without a reply

# The entry of event N has the id N-0, and Redis refuses an id that is not larger than the last one.
# So an event that is sent again, after a crash or a lost reply, is not added twice.
# KEYS: the stream, and the log that it is a copy of.
# ARGV: the log, the length of the stream, the id and the time of the entry, names and values.
_ADD = """
local stream, log = KEYS[1], KEYS[2]
if redis.call('GET', log) ~= ARGV[1] then
  if redis.call('EXISTS', stream) == 1 then
    return 'other'
  end
  redis.call('SET', log, ARGV[1])
end
local added = redis.pcall('XADD', stream, 'MAXLEN', '~', ARGV[2], ARGV[3], unpack(ARGV, 5))
if type(added) ~= 'table' or not added.err then
  return 'added'
end
if not string.find(added.err, 'equal or smaller', 1, true) then
  return added
end
local entry = redis.call('XRANGE', stream, ARGV[3], ARGV[3])[1]
if entry then
  local values = entry[2]
  for index = 1, #values, 2 do
    if values[index] == 'time' and values[index + 1] ~= ARGV[4] then
      return 'other'
    end
  end
end
return 'known'
"""


class StreamUnwritable(LonglineError):
    """An event cannot be added to a Redis stream."""

    stream: str
    address: str
    problem: str
    message = "the Redis stream {stream} at {address} cannot be written: {problem}"


class RedisStream:
    """A stream on a Redis server; close it at the end.

    Args:
        url: the URL of the server.
        name: the key of the stream.
        log_id: the event log that is copied.
        length: about how many entries are kept.

    Raises:
        BadOption: the URL is not valid.
    """

    def __init__(self, url: str, name: str, *, log_id: str, length: int) -> None:
        self._name = name
        self._log_id = log_id
        self._length = length
        self._address = redact_server_url(url)
        try:
            self._redis = Redis.from_url(
                url,
                socket_timeout=_TIMEOUT,
                socket_connect_timeout=_TIMEOUT,
                decode_responses=True,
                retry=Retry(NoBackoff(), 1),  # a connection that was closed while it was idle
            )
        except ValueError:  # whose text may contain the password
            problem = "must be a Redis URL, such as redis://127.0.0.1:6379/0"
            raise BadOption("redis_url", problem) from None
        self._add = self._redis.register_script(_ADD)

    async def handle(self, event: Event) -> None:
        """Add an event, unless it is in the stream.

        Raises:
            StreamUnwritable: it cannot be added; it says what to do.
        """
        fields = _fields(event, self._log_id)
        entry = (f"{event.id}-0", fields["time"])
        flat = [text for field in fields.items() for text in field]
        result = await self._call(self._log_id, str(self._length), *entry, *flat)
        if result == "other":
            raise self._unwritable(
                "it has entries of another database, or of this one before it was restored; delete "
                f"it with `redis-cli DEL {self._name}`, or set another LONGLINE_EVENT_STREAM_NAME"
            )

    async def close(self) -> None:
        """Disconnect."""
        await self._redis.aclose()

    async def _call(self, *arguments: str) -> Any:
        keys: Sequence[str] = (self._name, f"{self._name}:log")
        try:
            return await self._add(keys, arguments)
        except (RedisError, OSError) as error:
            advice = f"start it with `longline up`, or correct {REDIS_URL}"
            problem = permanent_cause(error) or f"Redis does not respond ({error}); {advice}"
            raise self._unwritable(problem) from error

    def _unwritable(self, problem: str) -> StreamUnwritable:
        return StreamUnwritable(self._name, self._address, problem)


def _fields(event: Event, log_id: str) -> dict[str, str]:
    message = cloud_event(event, log_id)
    return {**message, "data": orjson.dumps(message["data"]).decode()}
