"""Jobs whose requests pass proxies: configuration, secrecy, and what `plan` says."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from longline.config.job_spec import make_spec
from longline.config.proxies import ProxySpec, SessionSpec
from longline.config.settings import Settings, prepare_home
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.core.model import ItemState, JobState
from longline.http.proxies.proxy import parse_proxy
from longline.orchestrator import Orchestrator
from longline.sources.base import Source
from longline.storage.events.events import EventFilter
from longline.storage.store import open_store
from longline.wiring import open_proxy_pool, proxies_of, sessions_of
from tests.forward_proxy import ForwardProxy
from tests.proxy_servers import ProxyServers
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

SECRET = "Secr3t-9"  # noqa: S105  # that of the proxy of tests


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (True, ProxySpec()),
        ("any", ProxySpec()),
        (["dc", "home"], ProxySpec(tiers=("dc", "home"))),
        ("dc, home", ProxySpec(tiers=("dc", "home"))),
        ({"country": "bg", "minimum": 3}, ProxySpec(country=("BG",), minimum=3)),
        (False, None),
        ("none", None),
    ],
)
def test_proxies_are_written_in_short(written: object, expected: ProxySpec | None) -> None:
    spec = make_spec({"source": "a", "proxies": written})

    assert proxies_of(spec, Shop) == expected


class Shop(Source):
    """A source that uses proxies, and says so itself."""

    name = "a"
    proxies = {"tiers": ["own"]}  # noqa: RUF012  # as a user writes it


def test_the_source_says_it_unless_the_job_does() -> None:
    assert proxies_of(make_spec({"source": "a"}), Shop) == ProxySpec(tiers=("own",))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("item", SessionSpec()),
        ("login", SessionSpec(per="login")),
        (20, SessionSpec(per="uses", uses=20)),
        ({"uses": 5, "size": 2}, SessionSpec(per="uses", uses=5, size=2)),
    ],
)
def test_sessions_are_written_in_short(written: object, expected: SessionSpec) -> None:
    assert sessions_of(make_spec({"source": "a", "sessions": written}), Shop) == expected


@pytest.mark.parametrize(
    "values",
    [
        {"proxies": 3},
        {"proxies": {"tier": ["a"]}},
        {"proxies": {"country": "Bulgaria"}},
        {"proxies": "a b"},
        {"proxies": "any,none"},
        {"sessions": 0},
        {"sessions": "everyone"},
    ],
)
def test_other_values_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(BadOption):
        make_spec({"source": "a", **values})


def test_a_login_belongs_to_one_session() -> None:
    login = {
        "kind": "login",
        "url": "https://a.test/login",
        "hosts": ["a.test"],
        "fields": {"user": "ada", "password": "env:A_PASSWORD"},
    }
    with pytest.raises(BadOption, match="sessions: login"):
        sessions_of(make_spec({"source": "a", "sessions": "item", "auth": login}), Shop)


def test_sessions_that_change_too_often_for_the_cookies_of_a_source_are_refused() -> None:
    class Spider(Shop):
        has_own_cookies = True

    with pytest.raises(BadOption, match="sessions: item"):
        sessions_of(make_spec({"source": "a", "sessions": 20}), Spider)


async def test_the_pool_stays_when_a_cluster_is_started(
    tmp_path: Path, clock: VirtualClock
) -> None:
    alone = Settings(home=tmp_path / "home")
    prepare_home(alone)
    async with open_proxy_pool(alone, clock) as pool:
        await pool.add([parse_proxy("10.0.0.1:8080")])

    cluster = alone.model_copy(update={"redis_url": "redis://127.0.0.1:1"})
    async with open_proxy_pool(cluster, clock) as pool:
        assert [one.address for one in await pool.all()] == ["http://10.0.0.1:8080"]


async def test_a_job_waits_for_its_first_proxy(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    write_shop(site, tmp_path)
    settings, proxy = Settings(home=tmp_path / "home"), await ForwardProxy().start()

    async def add_proxy() -> None:
        await clock.sleep(300)
        async with open_proxy_pool(settings, clock) as pool:
            await pool.add([parse_proxy(proxy.line)])

    async with (
        Orchestrator(str(tmp_path / "shop.yaml"), settings=settings, clock=clock) as orchestrator,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(add_proxy())
        report = await orchestrator.execute()
    await proxy.close()

    assert report.state is JobState.COMPLETE
    assert report.progress.statistic("proxied") == 7
    assert proxy.requests == 7


async def test_a_scrapy_spider_uses_proxies_and_sessions(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    write_shop(site, tmp_path)
    spider = tmp_path / "proxied_spider.py"
    spider.write_text(SPIDER)
    settings, proxies = Settings(home=tmp_path / "home"), [ForwardProxy(), ForwardProxy()]
    prepare_home(settings)
    async with open_proxy_pool(settings, clock) as pool:
        await pool.add([parse_proxy((await one.start()).line) for one in proxies])

    async with Orchestrator(
        f"{spider}:Shop",
        {"site": site.url},
        settings=settings,
        clock=clock,
        rate="unlimited",
        proxies=True,
        sessions="item",
    ) as orchestrator:
        report = await orchestrator.execute()
    for one in proxies:
        await one.close()

    assert report.progress.counts[ItemState.STORED] == 5
    assert report.progress.statistic("proxied") == 7
    assert sum(one.requests for one in proxies) == 7


@pytest.mark.real_time
async def test_credentials_of_proxies_are_nowhere(
    site: ScriptedSite, tmp_path: Path, proxy_servers: ProxyServers
) -> None:
    home, log = tmp_path / "home", tmp_path / "run.log"
    manifest = write_shop(site, tmp_path)
    home.mkdir(0o700)
    with open_store(Settings(home=home).database) as store:
        async with open_proxy_pool(Settings(home=home), SystemClock(), store) as pool:
            wrong = proxy_servers.with_login.replace(SECRET, "wrong-" + SECRET)
            wrong = wrong.replace("127.0.0.1", "localhost")
            await pool.add([parse_proxy(wrong, tier="first")])  # so that it is tried
            await pool.add([parse_proxy(proxy_servers.with_login, tier="second")])

    command = [sys.executable, "-P", "-m", "longline", "run", str(manifest), "-vv", "--archive"]
    command += ["--proxies", "first,second"]
    ran = await _run([*command, "--home", str(home), "--log-file", str(log)])
    planned = await _run([*command[:4], "plan", str(manifest), "--home", str(home)])

    assert ran.returncode == 0, ran.stderr
    kept = home / "proxy-credentials"
    files = [one for one in tmp_path.rglob("*") if one.is_file() and kept not in one.parents]
    assert [one.name for one in files if SECRET.encode() in one.read_bytes()] == []
    assert SECRET not in ran.stdout + ran.stderr + planned.stdout + planned.stderr
    assert len(list(kept.iterdir())) == 2
    assert (
        "requests go through proxies; the rate limit of a domain stays the same" in planned.stdout
    )
    with open_store(Settings(home=home).database) as store:
        (event,), _ = await store.events.read(0, EventFilter(("proxy.quarantined",)))
    assert event.subject == f"proxy/http://localhost:{proxy_servers.login_port}"


SPIDER = """
import scrapy


class Shop(scrapy.Spider):
    name = "proxied"

    def __init__(self, site, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [f"{site}/"]

    def parse(self, response):
        yield from response.follow_all(css="a.item", callback=self.parse_page)

    def parse_page(self, response):
        yield {"url": response.url, "title": response.css("h1::text").get()}
"""


def write_shop(site: ScriptedSite, folder: Path) -> Path:
    """Let the site have five pages; return the manifest of a source that uses proxies for them."""
    site.says("/robots.txt", "")
    pages = [f"/p/{number}" for number in range(5)]
    for path in pages:
        site.says(path, "<h1>page</h1>", headers={"content-type": "text/html"})
    links = "".join(f"<a class=item href={path}>x</a>" for path in pages)
    site.says("/", links, headers={"content-type": "text/html"})
    manifest = folder / "shop.yaml"
    manifest.write_text(
        f"manifest: html\nname: shop\nstart: {site.url}/\nitems: a.item\nproxies: true\n"
        "sessions: item\nrate: unlimited\nfields: {title: {css: h1, required: true}}\n"
    )
    return manifest


async def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, env=os.environ
    )
