"""The bench an author works at: a source, its chain, and a view of all that goes through it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from longline.config.job_spec import JobSpec, make_spec
from longline.config.run_files import merged
from longline.config.settings import Settings, prepare_home
from longline.core.clock import Clock
from longline.core.errors import DiscoveryFailed, LonglineError
from longline.core.model import Item
from longline.devtools.exchanges import Mask, Watching, mask_of
from longline.engine.extractor import Collector
from longline.http.middleware.base import Middleware
from longline.sources.base import Source
from longline.sources.loader import check_needs
from longline.sources.visit import Visit
from longline.wiring import Fetching, client_identity, open_fetching, torn_down, usable

SINGLE = "page"
"""What stands in a spec where no source is meant."""


class SinglePage(Source):
    """Stands in where no source is meant: only its manners are asked for."""

    name = SINGLE


class BrowserPage(SinglePage):
    """The same for pages that a browser opens."""

    transport = "browser"


class WatchedCollector(Collector):
    """Remembers the last visit: what its fields come from is told nowhere else when it fails."""

    last: Visit | None = None

    def visit(self, item: Item | None = None, cursor: Mapping[str, Any] | None = None) -> Visit:
        """Return a fresh visit, and remember it."""
        self.last = super().visit(item, cursor)
        return self.last


@dataclass(frozen=True, slots=True)
class Bench:
    """A source that is ready to be asked, and what is watched of it."""

    spec: JobSpec
    source: Source
    collector: WatchedCollector
    fetching: Fetching
    link: Watching
    mask: Mask
    """Takes the secrets of the run out of what is shown or kept of it."""


def spec_of(source: str, params: Mapping[str, Any] | None = None) -> JobSpec:
    """Return what one run of a source would be told; `params` by the names of JobSpec.

    Raises:
        ConfigError: a file is broken, a name unknown, or a value does not fit.
    """
    return merged(make_spec({"source": source}), source, params or {})


@asynccontextmanager
async def open_bench(
    settings: Settings, spec: JobSpec, clock: Clock, *, transport: Middleware | None = None
) -> AsyncIterator[Bench]:
    """Open the chain of a source, in the home that the real runs have: its limits are shared.

    Raises:
        ConfigError: the source cannot be used.
    """
    prepare_home(settings)
    kind, source = usable(spec)
    async with (
        torn_down(source),
        open_fetching(settings, spec, kind, clock, transport) as fetching,
    ):
        link = Watching(fetching.link, clock)
        yield Bench(
            spec,
            source,
            WatchedCollector(source, link, clock, spec.params),
            fetching,
            link,
            mask_of(kind, client_identity(spec, kind)),
        )


@asynccontextmanager
async def open_page_link(
    settings: Settings,
    spec: JobSpec,
    clock: Clock,
    *,
    transport: Literal["http", "browser"] = "http",
) -> AsyncIterator[Watching]:
    """Open a chain for single pages, with the manners of a source or, for SINGLE, without any.

    With `transport` browser, SINGLE can render pages.

    Raises:
        ConfigError: the source cannot be used.
    """
    prepare_home(settings)
    single = BrowserPage if transport == "browser" else SinglePage
    kind = single if spec.source == SINGLE else usable(spec)[0]
    check_needs(kind, settings.chromium)
    async with open_fetching(settings, spec, kind, clock) as fetching:
        yield Watching(fetching.link, clock)


async def find_items(bench: Bench, most: int, visit: Visit) -> AsyncIterator[Item]:
    """Yield the first items that a source discovers.

    Raises:
        LonglineError: they cannot be found; whatever a source raises becomes one.
    """
    stream = None
    try:
        await bench.source.prepare(visit)
        count = 0
        stream = bench.source.discover(visit)
        async for found in stream:
            if isinstance(found, Item):
                count += 1
                yield found
            if count >= most:
                return
    except LonglineError:
        raise
    except Exception as error:
        raise DiscoveryFailed(bench.source.name, repr(error)) from error
    finally:
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()
