# Pins wording on purpose.
"""One message of each family that fetching writes, word for word."""

from __future__ import annotations

import pytest

from longline.http.errors import RobotsDisallowed
from longline.http.middleware.bans import find_ban
from longline.http.transport import HttpOptions, HttpTransport
from tests.http.blocked_pages import BLOCKED
from tests.http.robots_bench import Bench, Calendar
from tests.scripted_site import ScriptedSite


async def test_a_refusal_of_robots_txt_quotes_the_line_and_its_group(site: ScriptedSite) -> None:
    clock = Calendar()
    transport = HttpTransport(HttpOptions(), clock)
    bench = Bench(site, clock, transport)
    site.says("/robots.txt", "User-agent: *\nDisallow: /closed\n")

    with pytest.raises(RobotsDisallowed) as refused:
        await bench.get(bench.middleware(), "/closed/a")
    await transport.close()

    assert refused.value.reason == "line 2, 'Disallow: /closed', for all user agents"


def test_the_evidence_of_a_ban_is_a_phrase() -> None:
    found = find_ban(BLOCKED["denied and nothing else"])

    assert found == "status 403 and the text 'Access denied'"
