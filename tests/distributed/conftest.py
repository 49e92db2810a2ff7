"""A site that answers some requests at once, and the others when it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.distributed.cluster_home import GatedSite


@pytest.fixture
async def gated_site() -> AsyncIterator[GatedSite]:
    async with GatedSite(200, max_in_flight=40) as site:
        yield site
