"""One error out of many that happened at once."""

from __future__ import annotations

from longline.errors import LonglineError


def first_of(several: BaseExceptionGroup[LonglineError]) -> LonglineError:
    """Return the first error of a group, however deep in it."""
    error: BaseException = several
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, LonglineError) else LonglineError(str(error))
