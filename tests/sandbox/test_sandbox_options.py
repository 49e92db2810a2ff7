"""The options of the practice web, and where it can be reached."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from longline.core.errors import BadOption
from longline.sandbox.web import PracticeWeb, WebOptions
from tests.virtual import VirtualClock


@pytest.mark.parametrize(
    "options",
    [
        {"items": -1},
        {"rate": 0.0},
        {"burst": 0},
        {"faults": 1.5},
        {"missing": -0.1},
        {"latency": -1.0},
    ],
)
def test_a_figure_out_of_bounds_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(BadOption) as caught:
        WebOptions(**options)

    assert [caught.value.option] == list(options)


async def test_the_addresses_are_known_once_it_listens(web: PracticeWeb) -> None:
    assert not web.url.endswith(":0")
    assert web.site_url == web.url
    assert web.api_url == f"{web.url}/api"
    assert web.youtube_url == f"{web.url}/youtube"


async def test_it_can_be_stopped_twice(clock: VirtualClock) -> None:
    web = PracticeWeb(WebOptions(items=1), clock=clock)
    await web.start()

    await web.stop()
    await web.stop()


async def test_a_port_that_is_taken_is_an_error(web: PracticeWeb, clock: VirtualClock) -> None:
    port = int(web.url.rpartition(":")[2])
    second = PracticeWeb(WebOptions(items=1), clock=clock, port=port)

    with pytest.raises(OSError, match=str(port)) as failed:
        await second.start()

    assert failed.value.errno == errno.EADDRINUSE
    await second.stop()
