"""A job whose answers were archived: run for real, over HTTP, with a chain around the archive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longline.config.job_spec import make_spec
from longline.core.clock import Clock
from longline.core.model import Job
from longline.engine.collector import Collector
from longline.engine.local import LocalEngine
from longline.engine.runtime import RunOptions, Runtime
from longline.http.archive.warc import Archive, ArchiveMiddleware
from longline.http.middleware.status import RedirectMiddleware, StatusMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from longline.sources.loader import load_source
from longline.storage.jobs import NewJob
from longline.storage.store import Store


async def collected(
    store: Store, archive: Archive, reference: str, options: Mapping[str, Any], clock: Clock
) -> Job:
    """Run a source to its end and keep every answer; return the job."""
    spec = make_spec({"source": reference, "set": dict(options)})
    source = load_source(reference).with_options(options)
    job = await store.jobs.create(NewJob(source.name, spec.snapshot(), {}, clock.now()))
    transport = HttpTransport(HttpOptions(), clock)
    chain = RedirectMiddleware(
        StatusMiddleware(ArchiveMiddleware(transport, archive, job.id, clock), clock)
    )
    async with Runtime(store, clock) as runtime:
        engine = LocalEngine(runtime, Collector(source, chain, clock), RunOptions(), job=job)
        await store.jobs.start(job.id, clock.now())
        await engine.run(job)
    await transport.close()
    return await store.jobs.get(job.id)
