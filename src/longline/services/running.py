"""A cluster for as long as a block of code runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from longline.config.settings import Settings
from longline.services.base import Told
from longline.services.down import stop_these
from longline.services.record import RecordFile, alone_in
from longline.services.signals import ending_in_order, undisturbed
from longline.services.up import Started, Wish, up


def say_nothing(_part: str, _what: str) -> None:
    """Tell nobody what happens."""


@contextlib.contextmanager
def cluster_running(
    settings: Settings, wish: Wish | None = None, told: Told = say_nothing
) -> Iterator[Started]:
    """Start what is missing, and stop exactly that in reverse order, however the block ends.

    SIGTERM and SIGHUP end the block too, unless somebody handles them. Addresses are on record
    while it runs: settings of the same home find them.

    Raises:
        StartFailed: a part does not start; nothing is left of the others.
        StopFailed: a part stays.
        ServiceUnreachable: a server that the settings name does not answer.
        ServicesBusy: another process starts or stops the same home.
    """
    with ending_in_order():
        started = up(settings, wish or Wish(), told)
        try:
            yield started
        finally:
            file = RecordFile(settings.home.resolve())
            with undisturbed(), alone_in(file.home):
                stop_these(file, started.processes, told)
