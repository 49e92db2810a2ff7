"""A job whose answers were archived: run for real, over HTTP, with a chain around the archive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longline.clock import Clock
from longline.config.spec import make_spec
from longline.engines.local import LocalEngine
from longline.engines.options import RunOptions
from longline.fetching.archives.base import Archive
from longline.fetching.archiving import Archiving
from longline.fetching.redirects import Redirects
from longline.fetching.statuses import Statuses
from longline.fetching.transports.http import HttpOptions, HttpTransport
from longline.jobs.collector import Collector
from longline.model import Job
from longline.sources.load import load_source
from longline.stores.jobs import NewJob
from longline.stores.store import Store


async def collected(
    store: Store, archive: Archive, reference: str, options: Mapping[str, Any], clock: Clock
) -> Job:
    """Run a source to its end and keep every answer; return the job."""
    spec = make_spec({"source": reference, "set": dict(options)})
    source = load_source(reference).with_options(options)
    job = await store.jobs.create(NewJob(source.name, spec.snapshot(), {}, clock.now()))
    transport = HttpTransport(HttpOptions(), clock)
    chain = Redirects(Statuses(Archiving(transport, archive, job.id, clock), clock))
    engine = LocalEngine(store, Collector(source, chain, clock), clock, RunOptions())
    await store.jobs.start(job.id, clock.now())
    await engine.run(job)
    await transport.close()
    return await store.jobs.get(job.id)
