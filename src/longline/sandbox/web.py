"""The practice web: a real HTTP server with a catalogue, rate limits and seeded faults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from longline.core.clock import Clock, SystemClock
from longline.core.errors import BadOption
from longline.sandbox.faults import FaultPlan
from longline.sandbox.gate import FREE_PREFIX, Gate
from longline.sandbox.limits import Limits
from longline.sandbox.server import PracticeServer
from longline.sandbox.sites.collection import Sites
from longline.sandbox.tally import Tally
from longline.sandbox.templates.catalogue import Catalogue
from longline.sandbox.templates.corpus import CorpusShelf
from longline.sandbox.templates.generated import GeneratedShelf
from longline.sandbox.templates.routes import Site, reply
from longline.sandbox.templates.template import Shelf
from longline.sandbox.youtube import PREFIX as YOUTUBE_PREFIX
from longline.sandbox.youtube import YouTube


# Stands above its users, because the default options are made as this module loads.
def _require(option: str, holds: bool, problem: str) -> None:  # noqa: FBT001  # reads as a sentence
    if not holds:
        raise BadOption(option, problem)


@dataclass(frozen=True, slots=True)
class WebOptions:
    """Options of the practice web.

    Args:
        items: how many templates there are; ignored with a corpus.
        seed: the same seed makes the same web.
        rate: requests a second that each client may make; None sets no limit.
        burst: how many of them may come at once.
        faults: the share of addresses that misbehave at first, from 0 to 1.
        missing: the share of templates that the sitemap lists and no address has.
        odd_shapes: whether a few templates have the odd shapes of real ones.
        disallow: whether robots.txt closes the API.
        corpus: a file of real templates to serve instead of generated ones.
        latency: how many seconds every answer waits.
        validators: whether answers have an ETag, and are 304 for who knows it already.

    Raises:
        BadOption: a number is out of range.
    """

    items: int = 500
    seed: int = 7
    rate: float | None = None
    burst: int = 5
    faults: float = 0.0
    missing: float = 0.0
    odd_shapes: bool = True
    disallow: bool = False
    corpus: Path | None = None
    latency: float = 0.0
    validators: bool = False

    def __post_init__(self) -> None:
        _require("items", self.items >= 0, "must not be negative")
        _require(
            "rate", self.rate is None or self.rate > 0, "must be more than 0 requests per second"
        )
        _require("burst", self.burst >= 1, "must be at least 1")
        _require("faults", 0 <= self.faults <= 1, "must be a share from 0 to 1")
        _require("missing", 0 <= self.missing <= 1, "must be a share from 0 to 1")
        _require("latency", self.latency >= 0, "must not be negative")


class PracticeWeb(PracticeServer):
    """A local web site for trials and tests; port 0 takes a free one.

    Raises:
        BadFile: the corpus cannot be read.
    """

    def __init__(
        self,
        options: WebOptions = WebOptions(),  # noqa: B008  # frozen, so sharing it is safe
        *,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__(host, port)
        self.options = options
        self.tally = Tally()
        self.catalogue = Catalogue(
            self._shelf(), options.seed, missing=options.missing, has_gaps=options.odd_shapes
        )
        self.sites = Sites(options.seed, clock or SystemClock(), site=lambda: self.url)
        self._gate = Gate(
            Limits(options.rate, options.burst),
            FaultPlan(options.faults, options.seed),
            self.tally,
            clock=clock or SystemClock(),
            latency=options.latency,
            has_validators=options.validators,
        )

    @property
    def site_url(self) -> str:
        """The base URL of pages and sitemaps."""
        return self.url

    @property
    def api_url(self) -> str:
        """The base URL of the template API."""
        return f"{self.url}/api"

    @property
    def youtube_url(self) -> str:
        """The URL to use in place of https://www.youtube.com."""
        return f"{self.url}{YOUTUBE_PREFIX}"

    def _shelf(self) -> Shelf:
        if self.options.corpus is not None:
            return CorpusShelf(self.options.corpus)
        return GeneratedShelf(
            self.options.items,
            self.options.seed,
            odd_shapes=self.options.odd_shapes,
            site=lambda: self.url,
        )

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._gate.guard])
        site = Site(self.catalogue, site=lambda: self.url, disallow=self.options.disallow)
        application.add_routes(site.routes())
        application.add_routes(YouTube().routes())
        application.add_routes(self.sites.routes(FREE_PREFIX))
        application.add_routes([web.get(f"{FREE_PREFIX}tally", self._show_tally)])
        return application

    async def _show_tally(self, _request: web.Request) -> web.Response:
        return reply(self.tally.as_dict())
