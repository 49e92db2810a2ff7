"""The tasks that Celery knows: each is one call of the child that it runs in."""

from __future__ import annotations

from celery import Celery

from longline.distributed.app import COLLECT, DISCOVER, EXPORT, FINISH
from longline.distributed.child import Child


def add_tasks(app: Celery, child: Child) -> None:
    """Register the tasks; they are run in processes that are forked after this.

    None has a limit of Celery's: a child may discover for hours beside the chunks that it works on,
    which the engine gives their time. One whose loop hangs is killed by its supervisor.
    """
    # Of a child that dies while it discovers, the sweeper counts the deaths, and sends another.
    app.task(child.discover, name=DISCOVER, reject_on_worker_lost=False)
    app.task(child.collect, name=COLLECT)
    app.task(child.finish, name=FINISH)
    app.task(child.export, name=EXPORT)
