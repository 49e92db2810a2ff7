"""One error out of many that happened at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from longline.errors import LonglineError, Unexpected


def first_of(several: BaseExceptionGroup[LonglineError]) -> LonglineError:
    """Return the first error of a group, however deep in it."""
    error: BaseException = several
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, LonglineError) else Unexpected(str(error))


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do something beside the block, until that has ended.

    Raises:
        LonglineError: what either of them raises.
    """
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            yield
            task.cancel()
    except* LonglineError as several:
        raise first_of(several) from several
