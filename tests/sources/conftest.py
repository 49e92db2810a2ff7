"""What the tests of API manifests share: a site that answers as an API, and a bench for sources."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.scripted_site import ScriptedSite
from tests.sources.api_bench import ApiSite, Bench
from tests.virtual import VirtualClock


@pytest.fixture
def api(site: ScriptedSite) -> ApiSite:
    return ApiSite(site)


@pytest.fixture
async def bench(site: ScriptedSite, clock: VirtualClock) -> AsyncIterator[Bench]:
    bench = Bench(site, clock)
    yield bench
    await bench.closing.aclose()
