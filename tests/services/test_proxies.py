"""The pool of proxies as people and servers use it: refreshed, killed, due."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.config.secrets import SecretRef
from longline.config.settings import Settings, prepare_home
from longline.core.clock import SystemClock
from longline.core.errors import BadFile, BadOption
from longline.distributed.proxy_tasks import due_reason
from longline.http.proxies.candidates import CandidateSource
from longline.http.proxies.choice import EVERYWHERE, Score
from longline.http.proxies.configuration import ProxySettings
from longline.http.proxies.judge import echo
from longline.http.proxies.pool import ProxyStates, ProxyUse, SeenDomain
from longline.limits.backends.state import returning
from longline.monitoring.metrics import Measurement, render_metrics
from longline.server.proxy_part import ProxyKeeper, run_proxy_tasks
from longline.services import proxies
from longline.services.health import CHECKS, check_health
from longline.services.proxies import ProxyOptions, ProxyOverview, UnknownProxy
from longline.storage.events.events import EventFilter
from longline.storage.proxy_refresh import PoolSummary, Refresh
from longline.storage.store import Store, open_store
from longline.wiring import open_limit_backends
from tests.proxy_servers import ProxyServers, proxies_running
from tests.scripted_site import ScriptedSite
from tests.services.homes import COMMAND

pytestmark = pytest.mark.real_time
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def proxy_servers() -> Iterator[ProxyServers]:
    with proxies_running() as servers:
        yield servers


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    settings = Settings(home=tmp_path / "home")
    prepare_home(settings)
    return settings


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.database) as store:
        yield store


def write_list(servers: ProxyServers, check: str = "", **others: Any) -> None:
    """Write a list with five living proxies and a dead one, and the settings that name it."""
    lines = [*servers.alive, servers.with_login, servers.dead]
    Path("list.txt").write_text("\n".join(lines))
    more = "".join(f"  {name}: {value}\n" for name, value in others.items())
    Path("longline.yaml").write_text(
        f"proxies:\n  candidates: {{mine: {{file: list.txt}}}}\n{more}"
        f"  check: {{timeout: 5s{check}}}\n"
    )


async def overview(settings: Settings, store: Store) -> ProxyOverview:
    """Return the pool."""
    return await proxies.read_overview(settings, store, CLOCK)


def states_of(found: ProxyOverview) -> dict[str, str]:
    """Return the state of each proxy."""
    return {one.pooled.address: one.pooled.state for one in found.pool.proxies}


@asynccontextmanager
async def slow_judge(site: ScriptedSite, seconds: float) -> AsyncIterator[str]:
    """Serve a judge that takes its time for requests through proxies."""

    async def answer(request: web.Request) -> web.Response:
        if "x-judge-nonce" in request.headers:
            await asyncio.sleep(seconds)
        return web.json_response(echo(request.remote, request.headers.items()))

    site.answers["/judge"] = answer
    yield f"{site.url}/judge"


async def test_a_refresh_fills_the_pool(
    settings: Settings, store: Store, proxy_servers: ProxyServers
) -> None:
    write_list(proxy_servers, ", chunk: 2", minimum=4)
    shown: list[Refresh] = []

    ended = await proxies.refresh_proxies(settings, store, CLOCK, on_progress=shown.append)

    found = await overview(settings, store)
    assert (ended.is_open, ended.candidates, ended.chunks, ended.alive) == (False, 5, 3, 4)
    assert [one.checked for one in shown if one.step == "check"] == [0, 1, 2]
    assert set(states_of(found).values()) == {"alive"}
    assert found.summary.usable == 4
    assert not found.summary.is_low
    assert await store.proxy_refreshes.pool() == replace(
        found.summary, at=(await store.proxy_refreshes.pool() or found.summary).at
    )


async def test_credentials_are_in_private_files_only(
    settings: Settings, store: Store, proxy_servers: ProxyServers
) -> None:
    write_list(proxy_servers)

    await proxies.refresh_proxies(settings, store, CLOCK)
    events = await store.events.last(EventFilter(), limit=100)
    shown = proxies.proxies_json(await overview(settings, store))
    store.close()

    holders = [one for one in settings.home.rglob("*") if _has(one, b"Secr3t-9")]
    assert [one.parent for one in holders] == [settings.proxy_credentials]
    assert "Secr3t-9" not in repr(events) + repr(shown)


def _has(path: Path, text: bytes) -> bool:
    return path.is_file() and text in path.read_bytes()


async def test_a_pool_is_kept_when_nothing_passes(
    settings: Settings, store: Store, proxy_servers: ProxyServers
) -> None:
    write_list(proxy_servers)
    await proxies.refresh_proxies(settings, store, CLOCK)
    before = states_of(await overview(settings, store))
    write_list(proxy_servers, f", judge: {proxy_servers.dead}/judge")

    ended = await proxies.refresh_proxies(settings, store, CLOCK)

    assert states_of(await overview(settings, store)) == before
    assert (ended.alive, sorted(ended.problems)) == (0, ["check", "merge"])


async def test_listed_proxies_that_stay_dead_are_removed(
    settings: Settings, store: Store, proxy_servers: ProxyServers
) -> None:
    write_list(proxy_servers, forget_after=2)
    added = proxies.parse_lines([proxy_servers.dead], ProxyOptions())
    listed = replace(added[0], proxy=replace(added[0].proxy, port=9, origin="mine"))
    await proxies.add_proxies(settings, store, CLOCK, [*added, listed])

    await proxies.refresh_proxies(settings, store, CLOCK)
    once = states_of(await overview(settings, store))
    await proxies.refresh_proxies(settings, store, CLOCK)
    twice = states_of(await overview(settings, store))

    dead = {proxy_servers.dead, listed.proxy.address}
    assert {name for name, state in once.items() if state == "dead"} == dead
    assert {name for name, state in twice.items() if state == "dead"} == {proxy_servers.dead}


async def test_a_killed_refresh_is_continued(
    settings: Settings, store: Store, proxy_servers: ProxyServers, site: ScriptedSite
) -> None:
    """Chunks that were checked are not checked again; pool and scores stay until the end."""
    async with slow_judge(site, 0.4) as judge:
        write_list(proxy_servers, f", chunk: 1, judge: '{judge}'")
        address = proxy_servers.alive[0]
        await proxies.add_proxies(
            settings, store, CLOCK, proxies.parse_lines([address], ProxyOptions())
        )
        await _set_score(settings, store, address)
        before = await overview(settings, store)

        command = [*COMMAND, "proxies", "refresh", "--home", str(settings.home)]
        process = await asyncio.to_thread(
            subprocess.Popen, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while ((refresh := await store.proxy_refreshes.last()) is None) or refresh.checked < 2:  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        killed = await store.proxy_refreshes.last()
        between = await overview(settings, store)
        site.hits.clear()
        ended = await proxies.refresh_proxies(settings, store, CLOCK)

    after = await overview(settings, store)
    assert killed is not None
    assert (killed.is_open, killed.chunks) == (True, 5)
    assert states_of(between) == states_of(before) == {address: "unchecked"}
    assert (ended.number, ended.checked, ended.alive) == (killed.number, 5, 4)
    # A request without a proxy for each chunk, and one through each proxy that is alive.
    assert site.hits["/judge"] <= 2 * (5 - killed.checked)
    assert after.use[address] == ProxyUse(requests=9, failed=3, bans=1)


async def _set_score(settings: Settings, store: Store, address: str) -> None:
    async with open_limit_backends(settings, CLOCK, store) as backends:
        states: ProxyStates = backends.proxies
        scores = {
            "shop.test": Score(requests=5, failed=1, bans=1),
            "news.test": Score(requests=3, failed=1),
            EVERYWHERE: Score(requests=6, failed=3),  # one of which is about no domain
        }
        for domain in ("shop.test", "news.test"):
            await states.domains.change(domain, lambda _old, now: (SeenDomain(now), None))
        for domain, new in scores.items():
            await _store_score(states, domain, address, new)


async def _store_score(states: ProxyStates, domain: str, address: str, new: Score) -> None:
    await states.scores(domain).change(address, returning(lambda _old, _now: new))


async def test_a_server_refreshes_a_pool_that_is_too_small(
    settings: Settings, store: Store, proxy_servers: ProxyServers
) -> None:
    write_list(proxy_servers, minimum=3)
    keeper = ProxyKeeper(store, CLOCK, settings)

    await keeper.tick()
    begun = await store.proxy_refreshes.last()
    running = asyncio.create_task(run_proxy_tasks(store, CLOCK, settings))
    while (last := await store.proxy_refreshes.last()) is None or last.is_open:  # noqa: ASYNC110  # as another process sees it
        await asyncio.sleep(0.05)
    running.cancel()
    await keeper.tick()
    again = await store.proxy_refreshes.last()

    assert begun is not None
    assert "0 proxies are usable" in begun.reason
    assert again == last
    assert (await overview(settings, store)).summary.usable == 4


async def test_a_server_without_proxies_does_nothing(settings: Settings, store: Store) -> None:
    await ProxyKeeper(store, CLOCK, settings).tick()

    assert await store.proxy_refreshes.last() is None


async def test_invalid_settings_stop_only_the_refresh(
    settings: Settings, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    Path("longline.yaml").write_text("proxies: {minimum: many}\n")
    keeper = ProxyKeeper(store, CLOCK, settings)

    await keeper.tick()
    await keeper.tick()
    found = await overview(settings, store)

    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert "proxies.minimum" in (found.problem or "")
    with pytest.raises(BadFile):
        await proxies.start_refresh(settings, store, CLOCK)


async def test_nothing_to_refresh_is_an_error(settings: Settings, store: Store) -> None:
    with pytest.raises(BadOption):
        await proxies.start_refresh(settings, store, CLOCK)


async def test_metrics_and_health_have_the_pool(settings: Settings, store: Store) -> None:
    await store.proxy_refreshes.note_pool(PoolSummary(1.0, {"alive": 3, "dead": 2}, 10))
    totals = await store.totals.read(2.0)

    text, _ = render_metrics(Measurement(totals, {}))
    report = await asyncio.to_thread(check_health, settings, {"proxies": CHECKS["proxies"]})

    assert b'longline_proxies{state="alive"} 3.0' in text
    assert b'longline_proxies{state="dead"} 2.0' in text
    assert [one.sentence for one in report.findings] == ["3 proxies are usable; the minimum is 10"]


# ---------------- Adding, checking, removing


async def test_proxies_are_added_checked_and_removed(
    settings: Settings, store: Store, proxy_servers: ProxyServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXY_LOGIN", "ada:Secr3t-9")
    reference = SecretRef("env", "PROXY_LOGIN")
    login = f"127.0.0.1:{proxy_servers.login_port}"
    options = ProxyOptions("paid", "bg", reference, is_rotating=True)
    lines = proxies.parse_lines([login], options)
    dead = proxies.parse_lines([proxy_servers.dead], ProxyOptions())

    added = await proxies.add_proxies(settings, store, CLOCK, [*lines, *dead])
    known = await proxies.add_proxies(settings, store, CLOCK, lines)
    checked = await proxies.check_proxies(settings, store, CLOCK, [])
    states = states_of(await overview(settings, store))
    removed = await proxies.remove_proxies(settings, store, CLOCK, [login])

    assert (len(added), known, checked.alive) == (2, [], 1)
    assert states == {f"http://{login}": "alive", proxy_servers.dead: "dead"}
    assert removed == [f"http://{login}"]
    assert list(states_of(await overview(settings, store))) == [proxy_servers.dead]


@pytest.mark.parametrize("name", ["http://10.0.0.1:80", "10.0.0.1:80", "u:p@x:1"])
async def test_an_unknown_proxy_is_an_error(settings: Settings, store: Store, name: str) -> None:
    with pytest.raises(UnknownProxy) as raised:
        await proxies.remove_proxies(settings, store, CLOCK, [name])

    assert "u:p" not in str(raised.value)


def test_a_line_that_is_no_proxy_is_named_by_its_number() -> None:
    with pytest.raises(BadOption) as raised:
        proxies.parse_lines(["10.0.0.1:80", "ada:Secr3t-9@nowhere"], ProxyOptions())

    assert raised.value.option == "proxy 2"
    assert "Secr3t-9" not in str(raised.value)


async def test_a_list_changes_nothing_of_a_proxy_that_was_added(
    settings: Settings, store: Store, proxy_servers: ProxyServers
) -> None:
    Path("list.txt").write_text(f"{proxy_servers.alive[0]}\n{proxy_servers.with_login}\n")
    Path("longline.yaml").write_text(
        "proxies: {candidates: {mine: {file: list.txt, tier: free}}, check: {timeout: 5s}}\n"
    )
    login = proxy_servers.with_login.replace("ada:Secr3t-9@", "")
    options = ProxyOptions("own", credentials=SecretRef.parse("env:GATEWAY"))
    await proxies.add_proxies(settings, store, CLOCK, proxies.parse_lines([login], options))

    await proxies.refresh_proxies(settings, store, CLOCK)

    found = {
        one.pooled.address: one.pooled for one in (await overview(settings, store)).pool.proxies
    }
    assert (found[login].proxy.tier, found[login].proxy.origin) == ("own", "")
    assert found[login].proxy.credentials == "env:GATEWAY"
    assert found[proxy_servers.alive[0]].proxy.origin == "mine"
    assert not settings.proxy_credentials.exists()


async def test_the_address_of_a_judge_is_redacted(
    settings: Settings, store: Store, proxy_servers: ProxyServers
) -> None:
    judge = "http://ada:Secr3t-9@127.0.0.1:1/judge?token=Secr3t-8"
    write_list(proxy_servers, f", judge: '{judge}'")

    ended = await proxies.refresh_proxies(settings, store, CLOCK)

    events, _ = await store.events.read(0, EventFilter(("proxies.refreshed",)))
    assert "127.0.0.1:1/judge" in ended.problems["check"]
    assert "Secr3t" not in repr((ended.problems, events))


async def test_a_minimum_applies_without_lists(settings: Settings, store: Store) -> None:
    before = (await overview(settings, store)).summary
    Path("longline.yaml").write_text("proxies: {minimum: 1}\n")

    after = (await overview(settings, store)).summary

    assert (before.is_low, after.is_low) == (False, True)
    assert due_reason(ProxySettings(minimum=1), None, after, 9e9) is None


# ---------------- When a refresh is due

KNOWN = ProxySettings(
    candidates={"mine": CandidateSource(file=Path("list.txt"))}, minimum=10, refresh=3600.0
)
ENDED = Refresh(1, "schedule", started_at=0.0, ended_at=60.0)
ENOUGH, FEW = PoolSummary(0, {"alive": 10}, 10), PoolSummary(0, {"alive": 9, "dead": 5}, 10)


@pytest.mark.parametrize(
    ("last", "summary", "now", "reason"),
    [
        (None, ENOUGH, 0.0, "schedule"),
        (ENDED, ENOUGH, 3599.0, None),
        (ENDED, ENOUGH, 3600.0, "schedule"),
        (ENDED, FEW, 659.0, None),
        (ENDED, FEW, 660.0, "9 proxies are usable; the minimum is 10"),
        (replace(ENDED, ended_at=None), FEW, 9e9, None),
    ],
)
def test_a_refresh_is_due(
    last: Refresh | None, summary: PoolSummary, now: float, reason: str | None
) -> None:
    assert due_reason(KNOWN, last, summary, now) == reason


def test_without_lists_or_interval_no_refresh_is_due() -> None:
    never = KNOWN.model_copy(update={"refresh": None})

    assert due_reason(ProxySettings(), None, FEW, 9e9) is None
    assert due_reason(never, ENDED, ENOUGH, 9e9) is None
