"""The exit codes of the command line, and the code and sentence that each error becomes."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

from longline.core.output import sanitize_error

TRACEBACK = "LONGLINE_TRACEBACK"
OUT_OF_MEMORY = (
    "out of memory: this process may not use more memory or threads. Raise its limits (`ulimit "
    "-a`, or those of its container) and run the same command again. Committed data is safe"
)


class ExitCode(IntEnum):
    """What a command exits with."""

    OK = 0
    FAILED = 1
    USAGE = 2
    PARTIAL = 3
    PAUSED = 4
    INTERRUPTED = 130


def worst_exit_code(codes: Iterable[int]) -> int:
    """Return the worst of several exit codes; 0 when there are none."""
    worst_first = (
        ExitCode.INTERRUPTED,
        ExitCode.USAGE,
        ExitCode.FAILED,
        ExitCode.PAUSED,
        ExitCode.PARTIAL,
    )
    found = set(codes)
    return next((code for code in worst_first if code in found), max(found, default=ExitCode.OK))


def explain_error(error: BaseException) -> tuple[str, int]:
    """Return the sentence that reports an error, and its exit code."""
    # Imported only now, so that --help stays quick.
    from longline.core.errors import LonglineError  # noqa: PLC0415

    if isinstance(error, LonglineError):
        return sanitize_error(error), error.exit_code
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    if is_out_of_memory(error):
        return OUT_OF_MEMORY, ExitCode.FAILED
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return sanitize_error(f"{where}{error.strerror or error}"), ExitCode.FAILED
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    sentence = f"internal error ({text}, at {place}). Set {TRACEBACK}=1 to see the traceback"
    return sanitize_error(sentence), ExitCode.FAILED


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the process may not have more memory or threads."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_out_of_memory(one) for one in error.exceptions)
    if isinstance(error, MemoryError) or "can't start new thread" in str(error):
        return True
    if isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EAGAIN):
        return True
    cause = error.__cause__ or error.__context__
    return cause is not None and is_out_of_memory(cause)
