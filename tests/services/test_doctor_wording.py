# Pins wording on purpose.
"""The words of findings, where the choice of a word depends on a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.services.doctor.doctor import examine
from longline.services.doctor.findings import CheckContext
from longline.services.doctor.servers import workers
from longline.storage.jobs import NewJob
from longline.storage.store import open_store


@pytest.mark.real_time
@pytest.mark.parametrize(("count", "words"), [(1, "1 job waits "), (2, "2 jobs wait ")])
async def test_one_job_is_singular_and_two_are_plural(
    tmp_path: Path, count: int, words: str
) -> None:
    context = CheckContext(Settings(home=tmp_path), {})
    with open_store(context.settings.database) as store:
        for _ in range(count):
            job = await store.jobs.create(NewJob("shop", {}, {}, 0.0))
            await store.jobs.start(job.id, 0.0, engine="celery")

    (found,) = examine(context, {"workers": workers})

    assert found.sentence.startswith(words)
