"""Fixtures: real proxies, which the tests of a process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proxy_servers import ProxyServers, proxies_running


@pytest.fixture(scope="session")
def proxy_servers() -> Iterator[ProxyServers]:
    with proxies_running() as servers:
        yield servers
