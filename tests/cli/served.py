"""A practice web in a thread, for commands with their own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from longline.sandbox.web import PracticeWeb, WebOptions


@contextmanager
def served(**options: Any) -> Iterator[PracticeWeb]:
    """Serve a practice web with these options."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    web = PracticeWeb(WebOptions(**options))
    asyncio.run_coroutine_threadsafe(web.start(), loop).result()
    try:
        yield web
    finally:
        asyncio.run_coroutine_threadsafe(web.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
