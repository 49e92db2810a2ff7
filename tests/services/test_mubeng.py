"""mubeng with the proxies of the pool; without its program, a stand-in that really proxies."""

from __future__ import annotations

import asyncio
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import psutil
import pytest
from aiohttp import web

from longline.config.settings import Settings, load_settings, prepare_home
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.core.model import Usage
from longline.http.errors import ProxyFailed
from longline.http.messages import Request
from longline.http.proxies.pool import CheckResult
from longline.http.proxies.proxy import parse_proxy
from longline.http.transport import HttpOptions, HttpTransport
from longline.services.background import MubengService, configured_services, restart_mubeng
from longline.services.processes import StartFailed, StateFile, find_process
from longline.wiring import open_proxy_pool
from tests.proxy_servers import ProxyServers, proxies_running
from tests.scripted_site import ScriptedSite
from tests.servers import free_port
from tests.services.homes import Home, is_listening

pytestmark = pytest.mark.real_time
CLOCK = SystemClock()
STAND_IN = Path(__file__).with_name("mubeng_stand_in.py")


@pytest.fixture(scope="module")
def proxy_servers() -> Iterator[ProxyServers]:
    with proxies_running() as servers:
        yield servers


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The program on PATH, or the stand-in."""
    found = shutil.which("mubeng")
    if found is not None:
        return found
    program = tmp_path / "bin" / "mubeng"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{STAND_IN.read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return str(program)


@pytest.fixture
def settings(tmp_path: Path, program: str) -> Settings:
    del program
    address = f"127.0.0.1:{free_port()}"
    settings = Settings(home=tmp_path / "home", proxy_rotator="mubeng", proxy_address=address)
    prepare_home(settings)
    return settings


@pytest.fixture
def service(settings: Settings) -> Iterator[MubengService]:
    service = MubengService(StateFile(settings.home.resolve()), settings)
    yield service
    service.stop()


def fill(settings: Settings, *lines: str) -> None:
    """Add proxies to the pool."""

    async def add() -> None:
        async with open_proxy_pool(settings, CLOCK) as pool:
            await pool.add([parse_proxy(line) for line in lines])

    asyncio.run(add())


def bury(settings: Settings, address: str) -> None:
    """Note that a check has found a proxy dead."""

    async def record() -> None:
        async with open_proxy_pool(settings, CLOCK) as pool:
            await pool.record_check(address, CheckResult(is_alive=False, checked_at=0.0))

    asyncio.run(record())


def request(settings: Settings, status: int = 200) -> tuple[int, str]:
    """Return status and body of a request to a site through the rotator."""

    async def send() -> tuple[int, str]:
        async def answer(_request: web.Request) -> web.Response:
            return web.Response(text="collected", status=status)

        async with ScriptedSite() as site, aiohttp.ClientSession() as session:
            site.answers["/page"] = answer
            proxy = f"http://{settings.proxy_address}"
            async with session.get(f"{site.url}/page", proxy=proxy) as response:
                return response.status, await response.text()

    return asyncio.run(send())


def test_requests_pass_through_the_proxies_of_the_pool(
    settings: Settings, service: MubengService, proxy_servers: ProxyServers
) -> None:
    fill(settings, proxy_servers.with_login)

    service.start()

    assert service.is_healthy()
    assert request(settings) == (200, "collected")
    assert stat.S_IMODE(service.list_file.stat().st_mode) == 0o600
    entry = service.entry
    assert entry is not None
    assert "Secr3t-9" not in " ".join(psutil.Process(entry.pid).cmdline())
    assert "Secr3t-9" not in " ".join(psutil.Process(entry.pid).environ().values())


def test_stopping_it_ends_its_process(
    settings: Settings, service: MubengService, proxy_servers: ProxyServers
) -> None:
    fill(settings, proxy_servers.alive[0])
    service.start()
    entry = service.entry

    service.stop()

    assert entry is not None
    assert find_process(entry) is None


def test_a_changed_pool_starts_it_again(
    settings: Settings, service: MubengService, proxy_servers: ProxyServers
) -> None:
    fill(settings, proxy_servers.alive[0], proxy_servers.dead)
    service.start()
    first = service.entry
    unchanged = restart_mubeng(settings)
    bury(settings, proxy_servers.dead)

    changed = restart_mubeng(settings)

    assert (unchanged, changed) == (False, True)
    assert service.list_file.read_text() == f"{proxy_servers.alive[0]}\n"
    assert service.entry != first
    assert service.is_healthy()


def test_a_rotator_that_does_not_run_is_not_started(
    settings: Settings, service: MubengService, proxy_servers: ProxyServers
) -> None:
    fill(settings, proxy_servers.alive[0])

    assert not restart_mubeng(settings)
    assert service.entry is None


def test_an_empty_pool_keeps_it_running(
    settings: Settings, service: MubengService, proxy_servers: ProxyServers
) -> None:
    """It would end with an empty list; the old list may still have a proxy that works."""
    fill(settings, proxy_servers.alive[0])
    service.start()
    bury(settings, proxy_servers.alive[0])

    assert not restart_mubeng(settings)
    assert service.is_healthy()


def test_without_proxies_it_is_not_started(service: MubengService) -> None:
    with pytest.raises(StartFailed) as raised:
        service.start()

    assert "longline proxies refresh" in str(raised.value)


def test_its_error_is_one_of_the_proxy(
    settings: Settings, service: MubengService, proxy_servers: ProxyServers, site_url: str
) -> None:
    fill(settings, proxy_servers.dead)
    service.start()
    rotator = parse_proxy(f"http://{settings.proxy_address}", is_rotating=True).proxy

    async def send() -> None:
        http = HttpTransport(HttpOptions(), CLOCK)
        try:
            await http(Request(site_url, proxy=rotator), Usage())
        finally:
            await http.close()

    with pytest.raises(ProxyFailed) as raised:
        asyncio.run(send())

    assert (raised.value.proxy, raised.value.is_certain) == (rotator.address, False)


@pytest.fixture
def site_url() -> str:
    return f"http://127.0.0.1:{free_port()}/page"


def test_gateways_are_not_in_its_list(settings: Settings, service: MubengService) -> None:
    fill(settings, "socks5://ada:a%20b%7B%7B@10.0.0.1:1080")

    async def add() -> None:
        gateway = parse_proxy(f"http://{settings.proxy_address}", is_rotating=True)
        async with open_proxy_pool(settings, CLOCK) as pool:
            await pool.add([gateway])

    asyncio.run(add())

    # {{NAME}} would be an environment variable.
    assert service.read_lines() == ["socks5://ada:a%20b%7B%7B@10.0.0.1:1080"]


async def test_a_caller_may_have_an_event_loop(
    settings: Settings, service: MubengService, proxy_servers: ProxyServers
) -> None:
    async with open_proxy_pool(settings, CLOCK) as pool:
        await pool.add([parse_proxy(proxy_servers.alive[0])])

    assert service.read_lines() == [proxy_servers.alive[0]]


def test_up_starts_it_and_down_stops_it(
    home: Home, program: str, proxy_servers: ProxyServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` fills the pool first, since it has lists and too few proxies are usable."""
    del program
    folder = home.path.parent
    monkeypatch.chdir(folder)
    (folder / "list.txt").write_text("\n".join([*proxy_servers.alive, proxy_servers.dead]))
    (folder / "longline.yaml").write_text(
        "proxies: {minimum: 2, candidates: {mine: {file: list.txt}}, check: {timeout: 5s}}\n"
    )
    address = f"127.0.0.1:{free_port()}"

    home.up(proxy_rotator="mubeng", proxy_address=address)
    status = home.status(proxy_rotator="mubeng", proxy_address=address)["proxies"]
    steps = [text for name, text in home.steps if name == "proxy pool"]
    home.down()

    assert (status.is_healthy, status.is_ours) == (True, True)
    assert steps == ["is refreshed, since too few proxies are usable", "3 usable"]
    assert not is_listening(int(address.rpartition(":")[2]))


def test_the_default_address_is_that_of_mubeng(tmp_path: Path) -> None:
    (service,) = configured_services(
        Settings(home=tmp_path, proxy_rotator="mubeng"), StateFile(tmp_path)
    )

    assert service.address == "127.0.0.1:8089"


def test_two_rotators_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_PROXY_ROTATOR", "mubeng")
    monkeypatch.setenv("LONGLINE_PROXY_COMMAND", "other")
    monkeypatch.setenv("LONGLINE_PROXY_ADDRESS", "127.0.0.1:1")

    with pytest.raises(BadOption, match="remove one of them"):
        load_settings()
