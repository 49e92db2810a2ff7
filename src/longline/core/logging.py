"""Logging: levels, text or JSON lines, context on every line, redacted secrets.

All loggers are children of `longline`. Warnings are for operators; INFO has a line per request and
per job; DEBUG is for debugging.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

import orjson

from longline.core.files import make_private_file, private_opener
from longline.core.output import sanitize
from longline.core.redaction import KNOWN_SECRETS, REDACTED, redact_url

ROOT = "longline"
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
_EMPTY: Mapping[str, str] = MappingProxyType({})
_CONTEXT: ContextVar[Mapping[str, str]] = ContextVar("longline_log_context", default=_EMPTY)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Names are bounded: otherwise a long text without a URL takes time that is quadratic in its length.
_URL = re.compile(r"[a-z][a-z0-9+.-]{0,30}://\S+", re.IGNORECASE)
_PARAMETER = re.compile(
    r"([?&][^=&?#\s]{0,100}(?:passw|token|secret|signature|api_?key|apikey|auth|session)"
    r"[^=&?#\s]{0,100}=)[^&#\s]+",
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
        handlers.append((_LogFileHandler(options.file), max(1, options.verbosity)))
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


def redact_text(text: str) -> str:
    """Return a text of a site or a source without credentials, and without known secrets."""
    return KNOWN_SECRETS.text(redact(text))


def redact_data(value: Any) -> Any:
    """Return JSON data with its texts redacted as by `redact_text`."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {redact_text(name): redact_data(one) for name, one in value.items()}
    return [redact_data(one) for one in value] if isinstance(value, list | tuple) else value


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


# ---------------- Files

LOG_BYTES = 10_000_000
"""Size at which a log file is rotated."""
_PARTS = 5  # earlier parts that are kept: NAME.1 is the newest
_PIECE = 1 << 20  # bytes that are copied at a time
_CHECK_INTERVAL = 10.0  # seconds between two checks of the sizes in a folder


class _LogFileHandler(logging.FileHandler):
    """Appends to the file of `--log-file`, which several processes may share, and rotates it."""

    def __init__(self, file: str) -> None:
        self._is_rotated = Path(file).is_file()  # a pipe or a device is not
        self._max_bytes = LOG_BYTES
        super().__init__(file, "a+" if self._is_rotated else "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        if not self._is_rotated or self.stream is None:
            super().emit(record)
            return
        descriptor = self.stream.fileno()
        with ExitStack() as locked:
            with suppress(OSError):  # a file system without locks
                locked.enter_context(_file_lock(descriptor))
            super().emit(record)
            try:
                _rotate(descriptor, Path(self.baseFilename), self._max_bytes, _PARTS)
            except OSError:  # a full disk
                self._max_bytes += LOG_BYTES


def rotate_log(path: Path, *, max_bytes: int = LOG_BYTES, parts: int = _PARTS) -> None:
    """Rotate a file that is too large, to which other processes append what they print.

    A line that is printed between the last read and the truncation, which follows immediately, is
    lost. Lines of `--log-file` are not: their processes wait meanwhile.
    """
    with suppress(OSError):  # there is none yet, another process rotates it, or the disk is full
        if path.stat().st_size > max_bytes:
            with path.open("r+b", buffering=0) as file, _file_lock(file.fileno(), fcntl.LOCK_NB):
                _rotate(file.fileno(), path, max_bytes, parts)


async def keep_rotating_logs(folder: Path) -> None:
    """Rotate the logs in a folder when they are too large, until cancelled."""

    def rotate_all() -> None:
        for path in folder.glob("*.log"):
            rotate_log(path)

    while True:
        await asyncio.to_thread(rotate_all)
        await asyncio.sleep(_CHECK_INTERVAL)


@contextmanager
def _file_lock(descriptor: int, more: int = 0) -> Iterator[None]:
    # Not `flock`, which a process shares with the children that it forks.
    fcntl.lockf(descriptor, fcntl.LOCK_EX | more)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


def _rotate(descriptor: int, path: Path, max_bytes: int, parts: int) -> None:
    """Move the content of a file to NAME.1, that to NAME.2 and so on, if it is too large.

    Several processes append to the open file, so it is emptied and not replaced.

    Raises:
        OSError: a part cannot be written; the file is unchanged.
    """
    if os.fstat(descriptor).st_size <= max_bytes:
        return
    first, *later = (path.with_name(f"{path.name}.{number}") for number in range(parts + 1))
    try:
        with open(first, "wb", buffering=0, opener=private_opener) as copy:
            position = _copy_rest(descriptor, 0, copy.fileno())
            for old, new in zip(reversed([first, *later[:-1]]), reversed(later), strict=True):
                if old.exists():
                    old.replace(new)
            _copy_rest(descriptor, position, copy.fileno())
            os.ftruncate(descriptor, 0)
    finally:
        first.unlink(missing_ok=True)


def _copy_rest(source: int, position: int, target: int) -> int:
    """Copy a file from a position on; return the position of its end."""
    while piece := os.pread(source, _PIECE, position):
        os.write(target, piece)
        position += len(piece)
    return position
