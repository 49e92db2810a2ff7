"""The web interface of a large home: the time of each page, and the CPU of many open pages.

    python bench/dashboard.py [--home FOLDER] [--database URL]

Makes a home with a million records, 10,000 jobs, 500 sources and 10,000 domains, and serves it with
`longline serve` while two jobs run. With --home, the home is kept, and used again by the next call.
It exits with 1 when a page takes too long, or many open pages take too much CPU.
"""

from __future__ import annotations

import asyncio
import html
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote, urlencode, urljoin

import aiohttp
import click
import psutil

from children import LONGLINE, Child, environment, exit_on_sigterm
from large_home import Amounts, add_jobs, add_others, source_name
from longline.core.model import ItemState, JobState
from longline.storage.access import CredentialKind, NewCredential, Role
from longline.storage.store import Store, open_store

_MOST_MEDIAN = 0.100  # seconds
_MOST_P95 = 0.300
_MOST_SHARE = 0.20  # of a core
_START = 60.0  # seconds until the server and its jobs run
_BEGUN = 10  # items of a job that runs
_INTERVAL = 172.8  # seconds from job to job: 500 a day
_BUSY = "busy-{number}"
_BUSY_SOURCE = '''"""A source of the benchmark: pages of the practice web."""
from longline import Item, Source, layer


class Busy(Source):
    """Pages of generated sites."""

    name = "busy-{number}"

    async def discover(self, visit):
        for one in range(5_000):
            yield Item(str(one), f"{url}/generated/{{one}}/")

    @layer()
    async def page(self, visit):
        page = await visit.fetch(visit.item.url)
        return {{"title": page.first_text("title"), "price": {price}}}
'''
_MANIFEST = """\
manifest: html
name: {name}
about: One of many shops.
start: https://shop.test/
items: h3 a
fields: {{title: h1, price: .price, text: .text}}
fresh: {fresh}
schedule: {{cron: "{minute} {hour} * * *", timezone: Europe/Sofia}}
"""
_NEXT = re.compile(r'href="([^"#]*[?;&](?:before|after|from|page)=[^"]*)"')
_NAVIGATION = re.compile(r"<nav.*?</nav>", re.DOTALL)
_LINK = re.compile(r'href="(/[^"]*)"')
_LONG = ("&deep=1",)  # a search that a person continues, for at most two seconds
_UNBOUNDED = ("/live", "/stream", "/metrics", "/export")  # other bars measure them
_EMPTY = ("/proxies/refresh",)  # 404, since none was started


@click.command()
@click.option("--records", default=1_000_000, show_default=True)
@click.option("--jobs", default=10_000, show_default=True)
@click.option("--sources", default=500, show_default=True)
@click.option("--requests", default=30, show_default=True, help="Of each page.")
@click.option("--clients", default=100, show_default=True, help="Open pages that follow changes.")
@click.option("--seconds", default=30.0, show_default=True, help="For which they are open.")
@click.option("--rate", default=5.0, show_default=True, help="Requests per second of each job.")
@click.option("--home", type=click.Path(path_type=Path), help="Keep the home in this folder.")
@click.option("--database", help="URL of a PostgreSQL database.")
@click.option("--only", default="", help="Only pages whose address has this pattern.")
def main(
    records: int, jobs: int, sources: int, home: Path | None, database: str | None, **options: Any
) -> None:
    """Measure; exit with 1 when a limit is exceeded."""
    exit_on_sigterm()
    # Of the items of a job some fail, and some have been records before.
    items = round(records / jobs * 1.13) + 15
    with tempfile.TemporaryDirectory() as folder:
        home = (home or Path(folder) / "home").absolute()
        home.mkdir(parents=True, exist_ok=True)
        address = database or f"sqlite:///{home}/longline.sqlite"
        start = time.time() - 600 - jobs * _INTERVAL
        amounts = Amounts(jobs, items, sources, start, _INTERVAL, is_mixed=True)
        is_good = asyncio.run(_measure(home, address, amounts, Options(**options)))
    sys.exit(0 if is_good else 1)


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    requests: int
    clients: int
    seconds: float
    rate: float
    only: str


async def _measure(home: Path, address: str, amounts: Amounts, options: Options) -> bool:
    with open_store(address) as store:
        await add_jobs(store, amounts)
        await add_others(store, amounts, flows=home / "flows")
        await _print_amounts(store)
        async with _served(home, address, store, amounts, options) as server:
            is_good = await _measure_pages(server, await _pages(server, store), options)
            return await _measure_streams(server, options) and is_good


async def _print_amounts(store: Store) -> None:
    totals = await store.totals.read(await store.now())
    sources = await store.projections.rows("sources")
    records = sum(row["records"] for row in sources)
    print(
        f"{records:,} records, {len(await store.jobs.list(limit=None)):,} jobs, "
        f"{len(sources):,} sources, {totals.all_domains['domains']:,} domains, "
        f"{await store.events.newest():,} events, {totals.size_bytes / 1e6:,.0f} MB; "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )


# ---------------- The server, and what it runs


@dataclass(frozen=True, slots=True)
class Server:
    """A server, a browser that is logged in, and the jobs that run."""

    url: str
    process: psutil.Process
    session: aiohttp.ClientSession
    jobs: tuple[str, ...]

    def cpu(self) -> float:
        """Return the CPU time of the process, without its children, in seconds."""
        times = self.process.cpu_times()
        return times.user + times.system


@asynccontextmanager
async def _served(
    home: Path, address: str, store: Store, amounts: Amounts, options: Options
) -> AsyncIterator[Server]:
    begun = await store.now()
    await _cancel_earlier(store, begun)
    _write_manifests(home / "sources", amounts.sources)
    variables = {
        **environment(),
        "LONGLINE_HOME": str(home),
        "LONGLINE_DATABASE_URL": address,
        "LONGLINE_SOURCES": str(home / "sources"),
        "LONGLINE_FLOWS": str(home / "flows"),
    }
    port = 20_000 + os.getpid() % 10_000
    children = [Child([LONGLINE, "sandbox", "--port", str(port + 1)], variables)]
    try:
        url = f"http://127.0.0.1:{port}"
        command = [LONGLINE, "serve", "--address", f"127.0.0.1:{port}"]
        children.append(Child(command, variables, folder=home))
        process = psutil.Process(children[-1].process.pid)
        for number in (1, 2):
            await _submit(home, number, port + 1, variables, options.rate)
        # One connection, so that no request pays for another one.
        jar, connector = aiohttp.CookieJar(unsafe=True), aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(cookie_jar=jar, connector=connector) as session:
            await _log_in(store, session, url)
            yield Server(url, process, session, await _running(store, begun))
    finally:
        for child in reversed(children):
            child.end()


async def _cancel_earlier(store: Store, at: float) -> None:
    """Cancel what an earlier run of the benchmark has left: its practice web has gone."""
    names, reason = [_BUSY.format(number=number) for number in (1, 2)], "an earlier benchmark"
    for job in await store.jobs.list(limit=None, is_open=True):
        if job.source in names:
            await store.jobs.cancel(job.id, at, reason)
    for one in await store.launches.list(is_open=True, limit=None):
        if one.name in names and not await store.launches.cancel(one.id, at, reason):
            result = {"result": JobState.CANCELLED.value, "reason": reason}
            await store.launches.finish(one.id, one.owner or "", at, **result)


def _write_manifests(folder: Path, count: int) -> None:
    folder.mkdir(exist_ok=True)
    hour = datetime.now(UTC).hour
    for number in range(count):
        text = _MANIFEST.format(
            name=source_name(number),
            fresh="1h" if number % 50 == 0 else "300d",
            minute=number % 60,
            hour=(hour + 8 + number % 14) % 24,  # none is due during the benchmark
        )
        (folder / f"{source_name(number)}.yaml").write_text(text, "utf-8")


async def _submit(
    home: Path, number: int, port: int, variables: Mapping[str, str], rate: float
) -> None:
    file = home / f"busy_{number}.py"
    # Another price in each run, so that records change.
    text = _BUSY_SOURCE.format(number=number, url=f"http://127.0.0.1:{port}", price=port)
    file.write_text(text, "utf-8")
    # With a limit of its own, it is a new job: the items of an earlier one have another port.
    limit = str(10_000 + os.getpid())
    words = ["run", str(file), "--detach", "--rate", str(rate), "--limit", limit]
    ended = await asyncio.to_thread(Child([LONGLINE, *words], variables, folder=home).wait, _START)
    if ended.code:
        raise RuntimeError(ended.errors)


async def _log_in(store: Store, session: aiohttp.ClientSession, url: str) -> None:
    new = NewCredential(CredentialKind.LINK, "bench", Role.ADMIN, 600.0)
    _, secret = await store.credentials.create(new, await store.now())
    until = time.monotonic() + _START
    while time.monotonic() < until:
        with suppress(aiohttp.ClientConnectionError):
            async with session.get(f"{url}/login?link={secret}") as response:
                response.raise_for_status()
                return
        await asyncio.sleep(0.2)
    raise TimeoutError


async def _running(store: Store, since: float) -> tuple[str, ...]:
    """Return the running jobs of the benchmark, once both have stored some items."""
    until = time.monotonic() + _START
    names = [_BUSY.format(number=number) for number in (1, 2)]
    while time.monotonic() < until:
        found = [one for name in names for one in await store.jobs.list(source=name, limit=1)]
        new = [one.id for one in found if one.created_at >= since]
        rows = await store.projections.rows("runs", keys=new)
        started = [row["job"] for row in rows if row["items"]["stored"] > _BEGUN]
        if len(started) == len(names):
            return tuple(started)
        await asyncio.sleep(0.5)
    raise TimeoutError


# ---------------- Pages


async def _pages(server: Server, store: Store) -> list[str]:
    """Return the addresses of all pages: lists with their second pages, filters, and one each."""
    source = source_name(1)
    jobs = await store.jobs.page(source=source, states=[JobState.PARTIAL], limit=1)
    job = jobs[0].id
    drifted = next(row["source"] for row in await store.projections.rows("sources") if row["drift"])
    held = await store.job_items.page(job, ItemState.QUARANTINED, limit=1)
    alert = (await store.alerts.resolved(limit=1))[0].id
    flow = (await store.flows.list(limit=1))[0].id
    of_record = urlencode({"source": source, "key": f"{source}-0"})
    searches: tuple[str, ...] = (
        "q=Thing+5-50",
        "q=nowhere",
        "min_score=0.5",
        "state=gone",
        "grade=A",
    )
    searches += ("where=price%3E100", f"source={source}&q=Thing", f"job={job}", "since=2d")
    lists = [
        *("/sources", "/jobs", "/records", "/schedules", "/flows", "/domains", "/quarantine"),
        *("/duplicates", "/alerts", "/alerts/resolved", "/alerts/rules", "/alerts/deliveries"),
        *("/logs", "/events", "/events/audit", "/events/subscribers"),
        *(f"/records?{search}" for search in searches),
        *(f"/jobs/{job}/items?state={state}" for state in ("stored", "failed", "quarantined")),
        *(f"/jobs/{server.jobs[0]}/items?state={state}" for state in ("stored", "queued")),
        *(f"/jobs?{query}" for query in (f"source={source}", "state=open", "state=partial")),
        *(f"/sources?{query}" for query in ("state=drifted", "q=source-1")),
        *(f"/logs?{query}" for query in ("text=nowhere", "level=error", f"source={source}")),
        *(f"/logs?{query}" for query in (f"job={job}", "domain=site-5.test", "since=1h")),
        *(f"/events?{query}" for query in (f"source={source}", "type=item.failed", f"job={job}")),
        *("/events?type=record.changed", "/events?type=flow.complete"),
        *("/domains?show=trouble", "/domains?q=site-99", f"/quarantine?source={source}"),
        *(f"/quarantine?job={job}", "/quarantine?reason=nowhere", "/schedules?q=source-1"),
        *("/duplicates?show=confirmed", "/flows?state=waiting"),
    ]
    single = [
        *("/", "/login", "/sources/new", f"/sources/{source}", f"/sources/{drifted}"),
        *(f"/sources/{_BUSY.format(number=1)}", f"/jobs/{job}", f"/jobs/{job}/report"),
        *(f"/jobs/{one}" for one in server.jobs),
        f"/quarantine/item?{urlencode({'job': job, 'key': held[0].key})}",
        *(f"/records/one?{of_record}", f"/records/one?{of_record}&from=1&to=2"),
        *(f"/alerts/{alert}", f"/flows/{flow}", "/flows/flow-0", f"/schedules/{quote(source)}"),
    ]
    linked = [*_links(await _get(server, "/")), *_links(await _get(server, f"/sources/{source}"))]
    further = [
        next_page for one in lists if (next_page := _next_page(one, await _get(server, one)))
    ]
    found = [*single, *linked, *lists, *further, *await _api_lists(server, source, job, flow)]
    return list(dict.fromkeys(found))


def _links(text: str) -> list[str]:
    """Return what the navigation of a page leads to, and the form to edit a source."""
    menu = "".join(_NAVIGATION.findall(text))
    edit = [one for one in _LINK.findall(text) if one.startswith("/sources/edit")]
    return [html.unescape(one) for one in [*_LINK.findall(menu), *edit[:1]]]


def _next_page(page: str, text: str) -> str | None:
    found = _NEXT.findall(text)
    return urljoin(page, html.unescape(found[-1])) if found else None


async def _api_lists(server: Server, source: str, job: str, flow: str) -> list[str]:
    """Return the addresses of the API that answer GET, as far as their arguments are known."""
    known = {"name": source, "source": source, "job": job, "run": flow, "schedule": source}
    paths = json.loads(await _get(server, "/api/v1/openapi.json"))["paths"]
    found = []
    for path, methods in paths.items():
        for name, value in known.items():
            path = path.replace(f"{{{name}}}", quote(value))  # noqa: PLW2901  # filled step by step
        is_list = "get" in methods and not any(one in path for one in _UNBOUNDED + _EMPTY)
        if is_list and "{" not in path:
            needed = methods["get"].get("parameters", [])
            required = [one["name"] for one in needed if one["required"] and one["in"] == "query"]
            if not required:
                found.append(path)
    return found


async def _get(server: Server, path: str) -> str:
    async with server.session.get(server.url + path, headers={"Accept": "text/html"}) as response:
        if response.status != 200:  # noqa: PLR2004
            message = f"{path} responded with {response.status}"
            raise RuntimeError(message)
        return await response.text()


async def _measure_pages(server: Server, pages: list[str], options: Options) -> bool:
    idle = await _share(server, 5.0)
    print(f"the server with two jobs, and no page open: {idle:.1%} of a core")
    print(f"{'median':>8} {'p95':>8} {'slowest':>8} {'CPU':>8} {'size':>8}")
    slow = []
    for page in pages:
        if not re.search(options.only, page):
            continue
        size = len(await _get(server, page))
        walls, used, begun = [], server.cpu(), time.perf_counter()
        for _ in range(options.requests):
            wall = time.perf_counter()
            await _get(server, page)
            walls.append(time.perf_counter() - wall)
        seconds = time.perf_counter() - begun
        # Without what the server uses anyway.
        cpu = max(0.0, server.cpu() - used - idle * seconds) / options.requests
        walls.sort()
        middle, late = median(walls), walls[math.ceil(len(walls) * 0.95) - 1]
        is_limited = not any(one in page for one in _LONG)
        is_slow = is_limited and (middle > _MOST_MEDIAN or late > _MOST_P95)
        slow += [page] if is_slow else []
        times = " ".join(f"{one * 1000:5.1f} ms" for one in (middle, late, walls[-1], cpu))
        print(f"{times} {size / 1000:5.0f} kB {'! ' if is_slow else '  '}{page}", flush=True)
    print(f"{len(slow)} pages over {_MOST_MEDIAN:g} s median or {_MOST_P95:g} s p95")
    return not slow


# ---------------- Open pages


async def _measure_streams(server: Server, options: Options) -> bool:
    before = await _share(server, options.seconds)
    parts = ["/live/home", *(f"/live/job?{urlencode({'id': one})}" for one in server.jobs)]
    messages = [0] * options.clients
    async with aiohttp.ClientSession(
        cookie_jar=server.session.cookie_jar,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        readers = [
            asyncio.create_task(
                _follow(session, server.url + parts[place % len(parts)], messages, place)
            )
            for place in range(options.clients)
        ]
        await asyncio.sleep(3.0)  # all are connected
        messages[:] = [0] * options.clients
        share = await _share(server, options.seconds)
        for one in readers:
            one.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    print(
        f"{options.clients} open pages for {options.seconds:g} s, {min(messages)} to "
        f"{max(messages)} changes each: {share:.1%} of a core; before they were opened {before:.1%}"
    )
    return share < _MOST_SHARE and min(messages) > 0


async def _follow(
    session: aiohttp.ClientSession, url: str, messages: list[int], place: int
) -> None:
    async with session.get(url) as response:
        response.raise_for_status()
        async for line in response.content:
            messages[place] += line.startswith(b"id:")


async def _share(server: Server, seconds: float) -> float:
    used, begun = server.cpu(), time.perf_counter()
    await asyncio.sleep(seconds)
    return (server.cpu() - used) / (time.perf_counter() - begun)


if __name__ == "__main__":
    main()
