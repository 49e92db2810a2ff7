"""What a task asks about its records, be it of a model or of an enricher here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from longline.config.enriching import AnyTask, LocalTask
from longline.enriching.local import local_wish_of, opened
from longline.enriching.prompts import wish_of
from longline.stores.asking import Wish


def wishes_of(task: AnyTask) -> Callable[[Mapping[str, Any]], Wish]:
    """Return what makes a question, or a reason for none, of a record.

    Raises:
        ConfigError: the enricher of the task cannot be made.
    """
    if isinstance(task, LocalTask):
        return partial(local_wish_of, task, opened(task).version)
    return partial(wish_of, task)
