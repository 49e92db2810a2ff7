"""A small home with something of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longline.config.job_spec import make_spec
from longline.config.settings import Settings
from longline.core.errors import FailureKind
from longline.core.model import Failure, Job, Outcome, OutcomeAction, Usage
from longline.scheduling.flow import load_flow
from longline.scheduling.flow_runner import start_flow
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.scheduling.launches import SOURCE, NewLaunch
from longline.storage.store import Store
from tests.storage.given import attempt, complete, item, leased, stored
from tests.virtual import EPOCH

MANIFEST = """\
manifest: html
name: {name}
about: Quotes of a test.
start: http://x.test/
items:
  elements: div.quote
fields:
  text: span.text
"""
FLOW = """\
flow: publish
params: {region: north}
steps:
  - name: first
    command: ["true"]
  - name: ask
    approve: "Publish all?"
    after: first
"""


@dataclass(frozen=True, slots=True)
class Filled:
    """The ids of what the home has."""

    ended_job: str
    open_job: str
    flow_run: str

    def parameters(self) -> dict[str, Sequence[str | int]]:
        """Return values of the parameters of paths."""
        return {
            "job": [self.ended_job, self.open_job],
            "record": [1, 2],
            "name": ["shop"],
            "source": ["shop"],
            "launch": [1, 2],
            "schedule": ["daily"],
            "run": [self.flow_run],
            "export": ["shop.csv"],
        }


async def fill(settings: Settings, store: Store) -> Filled:
    """Put something of each kind into a home."""
    [sources], [flows] = settings.sources, settings.flows
    sources.mkdir(parents=True)
    flows.mkdir(parents=True)
    (sources / "shop.yaml").write_text(MANIFEST.format(name="shop"), "utf-8")
    (sources / "broken.yaml").write_text("manifest: html\n", "utf-8")
    (flows / "publish.yaml").write_text(FLOW, "utf-8")
    first = await _job(store, settings, EPOCH)
    await store.jobs.finish(first.id, EPOCH + 5)
    second = await _job(store, settings, EPOCH + 60, more=("e", "f"))
    await store.records.update("a", {"title": "Changed", "price": 2.5}, at=EPOCH + 90)
    for key in ("shop-1", "shop-2"):
        await store.launches.place(
            NewLaunch(SOURCE, "shop", dict(first.settings), "command", EPOCH, key=key)
        )
    daily = {"name": "daily", "source": "shop", "every": "1h"}
    await store.schedules.save("daily", daily, EPOCH)
    flow = load_flow(str(flows / "publish.yaml"), settings)
    run = await start_flow(store, flow, {}, at=EPOCH, origin="test")
    return Filled(first.id, second.id, run.id)


async def _job(store: Store, settings: Settings, at: float, more: Sequence[str] = ()) -> Job:
    """Create a job with items that were stored, failed, skipped and quarantined."""
    [folder] = settings.sources
    spec = make_spec({"source": str(folder / "shop.yaml")})
    job = await store.jobs.create(NewJob("shop", spec.snapshot(), {}, at))
    await store.jobs.start(job.id, at)
    items = [item(key) for key in ("a", "b", "c", "d", *more)]
    await store.queue.enqueue(Discovered(job.id, items, at, is_last=True))
    one, two, three, four = await leased(store, job, 4, at=at)
    url = "https://shop.test/d"
    failure = Failure(at, url, FailureKind.SERVER, "it responded 503", "given up", 0.25, 503)
    await complete(store, stored(one, usage=Usage(requests=2)))
    await complete(store, stored(two))
    invalid = Outcome(
        OutcomeAction.QUARANTINE, kind=FailureKind.INVALID, reason="no price", raw={"seen": "x"}
    )
    failed = Outcome(OutcomeAction.FAIL, kind=FailureKind.SERVER, reason="it responded 503")
    await complete(store, attempt(three, invalid, at + 2))
    usage = Usage(requests=1, failures=[failure])
    await complete(store, attempt(four, failed, at + 3, usage=usage))
    return job
