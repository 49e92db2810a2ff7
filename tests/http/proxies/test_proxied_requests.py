"""Requests through proxies: whose fault a failure is, and what follows from it."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict

from longline.config.proxies import SessionSpec
from longline.core.errors import BadStatus, Blocked, CircuitOpen, ConnectFailed, Deferred
from longline.core.model import Usage
from longline.http.chain import ClientIdentity, Policies, build_chain
from longline.http.errors import NoProxy
from longline.http.messages import Middleware, Page, Request
from longline.http.proxies.choice import Tier, Wanted
from longline.http.proxies.connections import ProxySessions, find_proxy_error
from longline.http.proxies.pool import PoolStatistics, ProxyPool, ProxyStates
from longline.http.proxies.proxy import CredentialFiles, Proxy, parse_proxy
from longline.http.proxies.rotation import ProxyRotation
from longline.http.proxies.sessions import SessionPool
from longline.http.transport import HttpOptions, HttpTransport
from longline.limits.backends.sqlite import SqliteStateFile
from longline.limits.breaker import CircuitBreaker, Phase
from longline.limits.limiter import RateLimiter
from longline.limits.retry import RetryHandler
from tests.forward_proxy import ForwardProxy
from tests.proxy_servers import ProxyServers
from tests.scripted_site import ScriptedSite, drop
from tests.servers import free_port
from tests.virtual import VirtualClock

BAN = "<html><head><title>Access denied</title></head><body><h1>Access denied</h1><p>Your IP has been blocked.</p></body></html>"  # noqa: E501  # one page


class Bench:
    """A chain with a pool of proxies, and the state of the site's breaker."""

    def __init__(self, clock: VirtualClock, folder: Path, ends: AsyncExitStack) -> None:
        self.clock = clock
        self.ends = ends
        self.usage = Usage()
        self.states = ProxyStates.in_memory(clock)
        self.pool = ProxyPool(self.states, clock, CredentialFiles(folder / "credentials"))
        self.breaker = CircuitBreaker(clock=clock)
        self.limiter = RateLimiter(None, clock=clock)
        self.opened: list[ForwardProxy] = []

    async def add(self, *faults: str) -> list[str]:
        """Start a proxy with each fault and add it; return the addresses."""
        started = [
            await ForwardProxy(fault, f"127.0.2.{number + 1}").start()
            for number, fault in enumerate(faults)
        ]
        self.opened += started
        await self.pool.add(parse_proxy(one.line) for one in started)
        return [one.line for one in started]

    def chain(
        self,
        *,
        expects: tuple[str, ...] = (),
        sessions: SessionPool | None = None,
        tiers: tuple[Tier, ...] = (),
        per_proxy: bool = False,
    ) -> Middleware:
        transport = HttpTransport(HttpOptions(timeout=10), self.clock)
        self.ends.push_async_callback(transport.close)
        rotation = ProxyRotation(
            self.states, self.clock, Wanted(), tiers=tiers, random=random.Random(1).random
        )
        policies = Policies(
            self.limiter,
            self.breaker,
            RetryHandler(circuit_breaker_threshold=None, clock=self.clock),
            identity=ClientIdentity(expects=expects),
            rotation=rotation,
            per_proxy=per_proxy,
            sessions=sessions,
        )
        return build_chain(transport, policies, self.clock, self.ends)

    async def statistics(self, site: ScriptedSite) -> PoolStatistics:
        return await self.pool.statistics(domain_of(site))

    async def phase(self, site: ScriptedSite) -> Phase:
        return (await self.breaker.state(domain_of(site))).phase


@pytest.fixture
async def bench(clock: VirtualClock, tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as ends:
        bench = Bench(clock, tmp_path, ends)
        yield bench
    for proxy in bench.opened:
        await proxy.close()


def domain_of(site: ScriptedSite) -> str:
    return site.url.removeprefix("http://")


async def get_all(chain: Middleware, usage: Usage, site: ScriptedSite, count: int) -> list[Page]:
    return [await chain(Request(f"{site.url}/{number}"), usage) for number in range(count)]


def serve(site: ScriptedSite, count: int, text: str = "<main>page</main>") -> None:
    site.says("/robots.txt", "")
    for number in range(count):
        site.says(f"/{number}", text, headers={"content-type": "text/html"})


@pytest.mark.parametrize(
    "fault", ["dead", "silent", "auth", "gateway", "empty", "inject", "cut", "garbage", "hang-up"]
)
async def test_a_fault_of_a_proxy_is_not_the_sites(
    site: ScriptedSite, bench: Bench, fault: str
) -> None:
    serve(site, 20)
    await bench.add(fault, fault, "good", "good", "good", "good")

    pages = await get_all(bench.chain(expects=("main",)), bench.usage, site, 20)

    assert [page.text for page in pages] == ["<main>page</main>"] * 20
    assert bench.usage.retries == 0
    assert await bench.phase(site) is Phase.CLOSED
    statistics = await bench.statistics(site)
    assert {one.pooled.address for one in statistics.proxies if one.quarantined_until} <= {
        one.line for one in bench.opened if one.fault == fault
    }
    assert sum(one.requests for one in bench.opened if one.fault == fault) <= 2


async def test_a_text_in_place_of_a_page_is_not_the_sites(site: ScriptedSite, bench: Bench) -> None:
    serve(site, 20)
    await bench.add("text", "good", "good", "good")

    pages = await get_all(bench.chain(expects=("main",)), bench.usage, site, 20)

    assert [page.text for page in pages] == ["<main>page</main>"] * 20
    assert await bench.phase(site) is Phase.CLOSED


@pytest.mark.parametrize(
    ("text", "status"), [('{"price": 5}', 200), ("word " * 1000, 200), ("Moved to /0", 302)]
)
async def test_a_text_of_the_site_is_not_blamed_on_proxies(
    site: ScriptedSite, bench: Bench, text: str, status: int
) -> None:
    serve(site, 1)
    headers = {"content-type": "text/plain", "location": "/0"}
    site.says("/data", text, status=status, headers=headers)
    await bench.add("good", "good")

    page = await bench.chain(expects=("main",))(Request(f"{site.url}/data"), bench.usage)

    assert page.text == (text if status == 200 else "<main>page</main>")
    assert bench.usage.proxy_failures == 0


@pytest.mark.parametrize(
    ("method", "streamed", "is_empty"), [("GET", 0, True), ("GET", 5, False), ("POST", 0, False)]
)
def test_only_a_bare_page_without_a_body_is_a_proxys(
    method: str, streamed: int, *, is_empty: bool
) -> None:
    page = Page("http://site.test/", 200, CIMultiDict(), b"", streamed=streamed)

    assert (find_proxy_error(page, method) is not None) == is_empty


async def test_a_slow_proxy_is_used_seldom(site: ScriptedSite, bench: Bench) -> None:
    serve(site, 60)
    await bench.add("slow", "good", "good", "good")

    await get_all(bench.chain(), bench.usage, site, 60)

    assert bench.opened[0].requests <= 3
    assert (await bench.statistics(site)).quarantined == 0


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_failure_of_the_site_is_not_the_proxys(
    site: ScriptedSite, bench: Bench, status: int
) -> None:
    serve(site, 0)
    site.says("/a", status=status)
    await bench.add("good", "good")

    with pytest.raises(BadStatus) as caught:
        await bench.chain()(Request(f"{site.url}/a"), bench.usage)

    assert caught.value.status == status
    assert site.hits["/a"] == 3, "one for each attempt, through one proxy each"
    assert bench.usage.proxy_failures == 0
    assert (await bench.statistics(site)).quarantined == 0


async def test_a_site_that_no_proxy_reaches_is_down(site: ScriptedSite, bench: Bench) -> None:
    serve(site, 4)
    site.answers["/down"] = drop
    await bench.add("good", "good", "good", "good")
    chain = bench.chain()
    await get_all(chain, bench.usage, site, 4)

    with pytest.raises(ConnectFailed):
        await chain(Request(f"{site.url}/down"), bench.usage)

    assert (await bench.statistics(site)).quarantined == 0
    assert bench.usage.retries == 2


async def test_a_ban_after_twenty_requests_is_about_the_pair(
    site: ScriptedSite, bench: Bench
) -> None:
    serve(site, 100)
    count: dict[str, int] = {}

    async def answer(request: web.Request) -> web.StreamResponse:
        count[request.remote or ""] = count.get(request.remote or "", 0) + 1
        is_banned = request.remote == "127.0.2.1" and count["127.0.2.1"] > 20
        text, status = (BAN, 403) if is_banned else ("<main>page</main>", 200)
        return web.Response(text=text, status=status, content_type="text/html")

    site.answers |= {f"/{number}": answer for number in range(100)}
    addresses = await bench.add("good", "good", "good")

    pages = await get_all(bench.chain(), bench.usage, site, 100)

    assert all(page.status == 200 for page in pages)
    assert count["127.0.2.1"] == 21
    (event,) = (one for one in bench.usage.events if one.type == "proxy.banned")
    assert event.data["address"] == addresses[0]
    assert event.data["domain"] == domain_of(site)
    assert bench.usage.proxy_bans == 1
    assert await bench.phase(site) is Phase.CLOSED
    everywhere = await bench.pool.statistics()
    assert everywhere.quarantined == 0, "it may be used for other sites"


async def test_a_rotating_gateway_is_tried_again(site: ScriptedSite, bench: Bench) -> None:
    serve(site, 30)
    left = [403, 403, 403]

    async def answer(_request: web.Request) -> web.StreamResponse:
        status = left.pop() if left else 200
        return web.Response(
            text=BAN if status == 403 else "x", status=status, content_type="text/html"
        )

    site.answers["/a"] = answer
    proxy = await ForwardProxy().start()
    bench.opened.append(proxy)
    await bench.pool.add([parse_proxy(proxy.line, is_rotating=True)])
    chain = bench.chain()
    await get_all(chain, bench.usage, site, 30)

    page = await chain(Request(f"{site.url}/a"), bench.usage)

    assert page.status == 200
    assert (await bench.statistics(site)).quarantined == 0


async def test_a_gateway_that_fails_itself_is_not_the_site(
    site: ScriptedSite, bench: Bench
) -> None:
    serve(site, 4)
    proxy = await ForwardProxy().start()
    bench.opened.append(proxy)
    await bench.pool.add([parse_proxy(proxy.line, is_rotating=True)])
    chain = bench.chain()
    await get_all(chain, bench.usage, site, 4)
    proxy.fault = "gateway"

    with pytest.raises(NoProxy):
        await chain(Request(f"{site.url}/0"), bench.usage)

    assert bench.usage.retries == 0
    assert await bench.phase(site) is Phase.CLOSED


async def test_a_url_that_fails_through_few_proxies_waits_alone(
    site: ScriptedSite, bench: Bench
) -> None:
    serve(site, 4)
    site.answers["/cut"] = drop
    await bench.add("good", "good")
    chain = bench.chain()
    errors: list[Deferred] = []
    for _ in range(5):
        with pytest.raises(Deferred) as caught:
            await chain(Request(f"{site.url}/cut"), bench.usage)
        errors.append(caught.value)
        await bench.clock.sleep(2)
        await get_all(chain, bench.usage, site, 4)

    assert [one.is_for_domain for one in errors] == [True, True, True, False, False]
    assert "the connection broke" in errors[-1].problem
    assert await bench.phase(site) is Phase.CLOSED


async def test_a_body_of_a_proxy_that_cannot_be_used_is_not_the_sites(
    site: ScriptedSite, bench: Bench
) -> None:
    serve(site, 6)
    await bench.add("encoding", "good", "good", "good")

    pages = await get_all(bench.chain(), bench.usage, site, 6)

    assert [page.text for page in pages] == ["<main>page</main>"] * 6
    assert bench.opened[0].requests == 1


async def test_a_ban_of_all_proxies_is_a_ban(site: ScriptedSite, bench: Bench) -> None:
    serve(site, 0)
    for path in "/a", "/b", "/c":
        site.says(path, BAN, 403, headers={"content-type": "text/html"})
    await bench.add("good", "good")

    with pytest.raises(CircuitOpen) as caught:
        await bench.chain()(Request(f"{site.url}/a"), bench.usage)

    assert isinstance(caught.value.__cause__, Blocked)
    assert site.hits["/a"] == 2


async def test_a_url_that_bans_proxies_that_work_waits_alone(
    site: ScriptedSite, bench: Bench
) -> None:
    serve(site, 30)
    site.says("/trap", BAN, 403, headers={"content-type": "text/html"})
    await bench.add("good", "good", "good", "good")
    chain = bench.chain()
    await get_all(chain, bench.usage, site, 30)

    with pytest.raises(Exception, match="proxies are banned for") as caught:
        await chain(Request(f"{site.url}/trap"), bench.usage)

    assert getattr(caught.value, "is_for_domain", None) is False
    assert (await bench.statistics(site)).quarantined == 0
    assert await bench.phase(site) is Phase.CLOSED


async def test_without_a_proxy_items_wait_until_one_returns(
    site: ScriptedSite, bench: Bench
) -> None:
    serve(site, 1)
    await bench.add("dead", "dead")
    chain = bench.chain()

    with pytest.raises(NoProxy) as caught:
        await chain(Request(f"{site.url}/0"), bench.usage)

    assert caught.value.is_for_domain
    assert caught.value.until == pytest.approx(bench.clock.now() + 60, abs=1)
    assert await bench.phase(site) is Phase.CLOSED


async def test_an_empty_pool_makes_items_wait(site: ScriptedSite, bench: Bench) -> None:
    with pytest.raises(NoProxy):
        await bench.chain()(Request(f"{site.url}/0"), bench.usage)

    assert site.hits.total() == 0


async def test_a_proxy_returns_after_its_quarantine(site: ScriptedSite, bench: Bench) -> None:
    serve(site, 2)
    await bench.add("auth")
    chain = bench.chain()
    with pytest.raises(NoProxy):
        await chain(Request(f"{site.url}/0"), bench.usage)
    bench.opened[0].fault = "good"
    await bench.clock.sleep(61)

    page = await chain(Request(f"{site.url}/1"), bench.usage)

    assert page.status == 200
    assert [one.type for one in bench.usage.events] == ["proxy.quarantined", "proxy.returned"]


@pytest.mark.parametrize(("per_proxy", "seconds"), [(False, 19), (True, 4)])
async def test_the_rate_limit_is_that_of_the_domain(
    site: ScriptedSite,
    bench: Bench,
    per_proxy: bool,  # noqa: FBT001  # a parameter of pytest
    seconds: float,
) -> None:
    serve(site, 20)
    await bench.add("good", "good", "good", "good")
    bench.limiter = RateLimiter(1, 1, margin=0, clock=bench.clock)
    chain = bench.chain(per_proxy=per_proxy)
    for number in range(16):  # until all four have worked
        await chain(Request(f"{site.url}/{number}?first"), Usage())
    await bench.clock.sleep(60)
    started = bench.clock.now()

    await asyncio.gather(*(chain(Request(f"{site.url}/{number}"), Usage()) for number in range(20)))

    took = bench.clock.now() - started
    assert seconds <= took < seconds + 11


async def test_each_attempt_through_another_proxy_takes_its_own_slot(
    site: ScriptedSite, bench: Bench
) -> None:
    serve(site, 1)
    await bench.add("auth", "auth", "auth", "good")
    bench.limiter = RateLimiter(1, 1, margin=0, clock=bench.clock)
    started = bench.clock.now()

    await bench.chain()(Request(f"{site.url}/0"), bench.usage)

    assert bench.clock.now() - started >= bench.usage.requests - 1


async def test_the_budget_of_a_tier_is_not_exceeded(site: ScriptedSite, bench: Bench) -> None:
    serve(site, 10)
    proxy = await ForwardProxy().start()
    bench.opened.append(proxy)
    await bench.pool.add([parse_proxy(proxy.line, tier="dear")])
    chain = bench.chain(tiers=(Tier("dear", cost=0.3, budget=1.0),))

    await get_all(chain, bench.usage, site, 2)
    with pytest.raises(NoProxy):
        await get_all(chain, bench.usage, site, 1)

    assert proxy.requests == 3, "with robots.txt"


# ---------------- Sessions


async def test_an_item_has_its_own_cookies_and_one_proxy(site: ScriptedSite, bench: Bench) -> None:
    site.says("/robots.txt", "")
    seen: dict[str, list[tuple[str | None, str | None]]] = {}

    async def answer(request: web.Request) -> web.StreamResponse:
        cookie = request.cookies.get("session")
        seen.setdefault(request.query["item"], []).append((cookie, request.remote))
        response = web.Response(text="ok")
        if cookie is None:
            response.headers["Set-Cookie"] = f"session={request.query['item']}; Path=/"
        return response

    site.answers["/a"] = answer
    await bench.add("good", "good", "good", "good")
    chain = bench.chain(sessions=SessionPool(SessionSpec(per="item")))

    for _ in range(4):
        for item in "1", "2", "3":
            url = f"{site.url}/a?item={item}"
            await chain(Request(url, scope=item), bench.usage)

    assert {item: [one for one, _ in several] for item, several in seen.items()} == {
        item: [None, item, item, item] for item in ("1", "2", "3")
    }
    assert all(len({own for _, own in several}) == 1 for several in seen.values())


async def test_a_session_ends_with_its_proxy(site: ScriptedSite, bench: Bench) -> None:
    serve(site, 0)
    cookies: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        cookies.append(request.cookies.get("session"))
        headers = {"Set-Cookie": "session=1; Path=/"}
        return web.Response(text="ok", headers=headers)

    site.answers["/a"] = answer
    await bench.add("good", "good")
    chain = bench.chain(sessions=SessionPool(SessionSpec(per="login")))
    await chain(Request(f"{site.url}/a"), bench.usage)
    await chain(Request(f"{site.url}/a"), bench.usage)
    used = next(one for one in bench.opened if one.requests)
    used.fault = "auth"

    page = await chain(Request(f"{site.url}/a"), bench.usage)

    assert page.status == 200
    assert cookies == [None, "1", None], "the new session has no cookie of the old one"
    assert bench.usage.retries == 0


async def test_a_session_ends_with_the_budget_of_its_tier(site: ScriptedSite, bench: Bench) -> None:
    serve(site, 4)
    first, second = [await ForwardProxy().start() for _ in range(2)]
    bench.opened += [first, second]
    await bench.pool.add([parse_proxy(first.line, tier="paid")])
    await bench.pool.add([parse_proxy(second.line, tier="spare")])
    sessions = SessionPool(SessionSpec(per="login"))
    chain = bench.chain(sessions=sessions, tiers=(Tier("paid", 1.0, 3.0), Tier("spare")))

    pages = await get_all(chain, bench.usage, site, 4)

    assert [page.status for page in pages] == [200] * 4
    assert (first.requests, second.requests) == (3, 2), "with robots.txt"


async def test_a_session_serves_a_number_of_requests(site: ScriptedSite, bench: Bench) -> None:
    serve(site, 0)
    agents: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        agents.append(request.headers.get("X-Set"))
        return web.Response(text="ok", headers={"Set-Cookie": "a=1"})

    site.answers["/a"] = answer
    await bench.add("good", "good")
    headers = ({"X-Set": "0"}, {"X-Set": "1"})
    spec = SessionSpec(per="uses", uses=2, size=1, headers=headers)
    chain = bench.chain(sessions=SessionPool(spec))

    for _ in range(6):
        await chain(Request(f"{site.url}/a"), bench.usage)

    assert agents == ["1", "1", "0", "0", "1", "1"]


async def test_requests_share_a_session_by_its_name(site: ScriptedSite, bench: Bench) -> None:
    serve(site, 0)
    cookies: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        cookies.append(request.cookies.get("session"))
        return web.Response(text="ok", headers={"Set-Cookie": "session=1; Path=/"})

    site.answers["/a"] = answer
    await bench.add("good")
    chain = bench.chain(sessions=SessionPool(SessionSpec()))

    for item in "1", "2":
        await chain(Request(f"{site.url}/a", scope=item, session="basket"), bench.usage)
    await chain(Request(f"{site.url}/a", scope="3"), bench.usage)

    assert cookies == [None, "1", None]


# ---------------- Real proxies, and processes


@pytest.mark.real_time
async def test_real_proxies_of_every_kind_are_used(
    site: ScriptedSite, tmp_path: Path, proxy_servers: ProxyServers
) -> None:
    from longline.core.clock import SystemClock  # noqa: PLC0415  # the others have virtual time

    serve(site, 60)
    async with AsyncExitStack() as ends:
        bench = Bench(SystemClock(), tmp_path, ends)  # type: ignore[arg-type]  # real time
        lines = [*proxy_servers.alive, proxy_servers.with_login, proxy_servers.dead]
        wrong = f"http://ada:wrong-password@localhost:{proxy_servers.login_port}"
        await bench.pool.add(map(parse_proxy, [*lines, wrong]))

        pages = await get_all(bench.chain(), bench.usage, site, 60)

        assert len(pages) == 60
        everywhere = await bench.pool.statistics(domain_of(site))
        used = {one.pooled.address for one in everywhere.proxies if one.score.successes}
        assert used == {
            *proxy_servers.alive,
            f"http://127.0.0.1:{proxy_servers.login_port}",
        }
        secrets = ("Secr3t-9", "wrong-password")
        shown = f"{everywhere!r} {bench.usage!r}"
        assert not any(secret in shown for secret in secrets)


_CHILD = """
import asyncio, sys
from pathlib import Path
from longline.core.clock import SystemClock
from longline.core.model import Usage
from longline.http.proxies.choice import Result, Wanted
from longline.http.proxies.pool import ProxyPool, ProxyStates
from longline.http.proxies.proxy import parse_proxy
from longline.http.proxies.rotation import ProxyRotation
from longline.limits.backends.sqlite import SqliteStateFile
async def main():
    file = SqliteStateFile(Path(sys.argv[1]), SystemClock())
    states = ProxyStates.open(file.backend)
    await ProxyPool(states, SystemClock()).add([parse_proxy("http://a.test:1")])
    rotation = ProxyRotation(states, SystemClock(), Wanted())
    for _ in range(20):
        await rotation.record_success("shop.test", "http://a.test:1", 0.1, Usage())
    await rotation.record_failure(
        "shop.test", "http://a.test:1", Result.BANNED, "a ban", Usage()
    )
    print("ready", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.real_time
async def test_scores_of_a_killed_process_are_kept_and_shared(tmp_path: Path) -> None:
    from longline.core.clock import SystemClock  # noqa: PLC0415  # the others have virtual time

    path = tmp_path / "state.sqlite"
    command = [sys.executable, "-P", "-c", _CHILD, str(path)]
    children = [
        await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
        child.kill()
        await child.wait()

    file = SqliteStateFile(path, SystemClock())
    pool = ProxyPool(ProxyStates.open(file.backend), SystemClock())
    statistics = await pool.statistics("shop.test")
    await file.close()

    (status,) = statistics.proxies
    assert status.score.requests == 42
    assert status.score.bans == 2
    assert statistics.quarantined == 1
    assert statistics.usable == 0


async def test_an_unused_port_is_dead(site: ScriptedSite, bench: Bench) -> None:
    await bench.pool.add([parse_proxy(f"socks5://127.0.0.1:{free_port()}")])

    with pytest.raises(NoProxy, match="no connection"):
        await bench.chain()(Request(f"{site.url}/0"), bench.usage)


async def test_new_credentials_of_a_socks_proxy_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_session(
        connector: aiohttp.BaseConnector, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=connector, timeout=timeout)

    def make_connection() -> ResponseHandler:
        return ResponseHandler(asyncio.get_running_loop())

    sessions = ProxySessions(make_session, make_connection, aiohttp.ThreadedResolver(), tls=True)
    proxy = Proxy("socks5", "127.0.0.1", 1, "env:PROXY_LOGIN")
    used = []
    for login in ("ada:old", "ada:new"):
        monkeypatch.setenv("PROXY_LOGIN", login)
        async with sessions.use("http://shop.test/", proxy) as (session, _):
            used.append(session)
    await sessions.close()

    assert used[0] is not used[1]
