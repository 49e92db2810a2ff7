"""Errors of the broker that workers share."""

from __future__ import annotations

from longline.core.errors import BadOption, LonglineError


class NoRedis(BadOption):
    """No Redis is named; `option` is the setting for it, `problem` says what to do."""

    message = "a cluster needs Redis: {problem}"


class BrokerUnreachable(LonglineError):
    """No message can be sent to workers; the work itself is in the database."""

    exit_code = 2
    address: str
    problem: str
    setting: str = "LONGLINE_REDIS_URL"
    message = "Redis at {address} cannot be used ({problem})"
    hint = "Start it with `longline up`, or check {setting}, for example redis://127.0.0.1:6379/0."


class BrokerUnusable(BrokerUnreachable):
    """Redis answers, but cannot be used as it is; `problem` says what to change."""

    message = "Redis at {address} cannot be used: {problem}"
    hint = ""
