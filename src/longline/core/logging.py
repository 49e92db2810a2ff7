"""Logging: levels, text or JSON lines, context on every line, redacted secrets.

All loggers are children of `longline`. Warnings are for operators; INFO has a line per request and
per job; DEBUG is for debugging.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

import orjson

from longline.core.files import make_private_file
from longline.core.output import sanitize
from longline.core.redaction import KNOWN_SECRETS, REDACTED, redact_url

ROOT = "longline"
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
_EMPTY: Mapping[str, str] = MappingProxyType({})
_CONTEXT: ContextVar[Mapping[str, str]] = ContextVar("longline_log_context", default=_EMPTY)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_PARAMETER = re.compile(
    r"([?&][^=&#\s]*(?:passw|token|secret|signature|api_?key|apikey|auth|session)[^=&#\s]*=)[^&#\s]+",
    re.IGNORECASE,
)
_CREDENTIALS = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What is logged where.

    `verbosity` is 0 for warnings, 1 for requests and jobs, 2 for debugging (retries, waits, cache,
    leases, breakers). The file gets requests and jobs at least. `worker` is on every line.
    """

    verbosity: int = 0
    file: str | None = None
    as_json: bool = False
    worker: str | None = None


class LogContext:
    """Adds fields (job, source, item, domain, worker) to every line logged in its block.

    Every item uses it, so it is not a generator.
    """

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: str) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._token = _CONTEXT.set({**_CONTEXT.get(), **self._fields})

    def __exit__(self, *_error: object) -> None:
        _CONTEXT.reset(self._token)


def configure_logging(options: LogOptions) -> None:
    """Send the logs of longline to stderr, and to a private file if one is named.

    Raises:
        OSError: the file cannot be written.
    """
    reset_logging()
    logger = logging.getLogger(ROOT)
    handlers: list[tuple[logging.Handler, int]] = [(_StderrHandler(), options.verbosity)]
    if options.file is not None:
        make_private_file(Path(options.file))
        handlers.append(
            (_LogFileHandler(options.file, encoding="utf-8"), max(1, options.verbosity))
        )
    for handler, verbosity in handlers:
        handler.setLevel(_LEVELS[min(verbosity, len(_LEVELS) - 1)])
        # Not as context: threads that a library starts have none.
        fields = {"worker": options.worker} if options.worker else {}
        handler.setFormatter((JsonFormatter if options.as_json else TextFormatter)(fields))
        logger.addHandler(handler)
    logger.setLevel(min(handler.level for handler, _ in handlers))


def reset_logging() -> None:
    """Remove the handlers of `configure_logging`."""
    logger = logging.getLogger(ROOT)
    for handler in list(logger.handlers):
        if isinstance(handler, (_StderrHandler, _LogFileHandler)):
            logger.removeHandler(handler)
            handler.close()
    logger.setLevel(logging.NOTSET)


class TextFormatter(logging.Formatter):
    """One line per record: time, level, message, then context and fields as name=value."""

    def __init__(self, fields: Mapping[str, Any] = _EMPTY) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = "".join(f" {name}={_text(one)}" for name, one in self.fields(record).items())
        line = f"{time} {record.levelname} {redact(record.getMessage())}{fields}"
        if record.exc_info:
            line += f"\n{redact(self.formatException(record.exc_info))}"
        return KNOWN_SECRETS.text(line)

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the fields of all lines, the context of this task and the fields of `extra`."""
        own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        return {
            name: redact(value) if isinstance(value, str) else value
            for name, value in {**self._fields, **_CONTEXT.get(), **own}.items()
            if value is not None
        }


class JsonFormatter(TextFormatter):
    """One JSON object per record; times are UTC."""

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
            **self.fields(record),
        }
        if record.exc_info:
            values["exception"] = redact(self.formatException(record.exc_info))
        return KNOWN_SECRETS.text(orjson.dumps(values, default=str).decode())


def redact(text: str) -> str:
    """Return a text without the passwords, tokens and credentials of its addresses."""
    text = _URL.sub(lambda found: redact_url(found[0]), text)
    text = _PARAMETER.sub(rf"\1{REDACTED}", text)
    return _CREDENTIALS.sub(rf"\1 {REDACTED}", text)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = sanitize(str(value), is_line=True)
    return f'"{text}"' if " " in text else text


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the present `sys.stderr`, which live displays replace."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # a plain attribute in logging
        return sys.stderr


class _LogFileHandler(logging.FileHandler):
    """Appends to the file of `--log-file`."""
