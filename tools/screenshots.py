"""Make screenshots of all pages of the dashboard, with data from real runs against local sites.

    python tools/screenshots.py FOLDER [--home FOLDER] [--only NAME]...

It fills a home: sources with several runs, of which the last ones are complete, partial, failed,
drifted, blocked and paused; schedules, a flow that waits for approval, duplicates, alerts and
quarantined items. Then it serves the home and takes each page in light, dark and at 390 px. It
needs Playwright, and Chromium at /usr/bin/chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aiohttp import web
from playwright.async_api import Page, async_playwright

from longline.analysis.duplicates import find_duplicates
from longline.analysis.match_rules import read_rules
from longline.config.settings import Settings, load_settings
from longline.core.clock import SystemClock
from longline.core.errors import LonglineError
from longline.orchestrator import Orchestrator
from longline.sandbox.web import PracticeWeb, WebOptions
from longline.scheduling.flow import load_flow
from longline.scheduling.flow_runner import start_flow
from longline.storage.access import CredentialKind, NewCredential, Role
from longline.storage.monitoring.logs import LogLine
from longline.storage.query import RecordQuery
from longline.storage.store import Store, open_store

ROOT = Path(__file__).parent.parent
CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
RUNS = 20
HOURS = 12  # between two runs
EXAMPLES = ("quotes", "news", "listings_homes", "listings_imoti", "listings_wohnen")


@dataclass(frozen=True, slots=True)
class Variant:
    """How pages are taken."""

    name: str
    scheme: Literal["light", "dark"]
    width: int
    height: int


VARIANTS = (
    Variant("light", "light", 1280, 900),
    Variant("dark", "dark", 1280, 900),
    Variant("phone", "light", 390, 844),
)


# ---------------- Sites: shops whose prices change, and that fail as they are told


@dataclass(slots=True)
class Shop:
    """A shop with items that change from run to run; `trouble` is what is wrong with it now."""

    host: str
    nouns: Sequence[str]
    count: int = 60
    run: int = 0
    trouble: str = ""

    async def respond(self, request: web.Request) -> web.Response:
        """Return the list, or the page of an item."""
        await asyncio.sleep(random.uniform(0.005, 0.06))  # noqa: S311  # a latency
        if self.trouble == "banned":
            text = "<title>Just a moment...</title><p id=challenge-form>Checking your browser</p>"
            return web.Response(status=403, text=text, headers={"cf-mitigated": "challenge"})
        if self.trouble == "down":
            return web.Response(status=404, text="<h1>Not found</h1>")
        number = request.match_info.get("number")
        if number is None:
            links = "".join(f'<li><a href="/item/{one}">{one}</a></li>' for one in self._present())
            return _page(f"<ul class=list>{links}</ul>")
        if self.trouble == "partial" and int(number) % 9 == 0:
            return web.Response(status=500 if int(number) % 2 else 410)
        return _page(self._item(int(number)))

    def _present(self) -> list[int]:
        return [one for one in range(1, self.count + 1) if (one * 7 + self.run) % 23]

    def _item(self, number: int) -> str:
        made = random.Random(f"{self.host} {number}")  # noqa: S311  # the same for each run
        noun = self.nouns[number % len(self.nouns)]
        colour = made.choice(["red", "green", "blue", "black", "ochre"])
        base = made.randint(20, 900)
        price = base + (self.run // 3 * 5 if number % 6 == 0 else 0)
        if self.trouble == "invalid" and number % 8 == 0:
            price = -price
        css = "amount" if self.trouble == "redesigned" and number > 4 else "price"  # noqa: PLR2004
        weight = f"<i class=weight>{made.randint(1, 30)}</i>" if made.random() < 0.8 else ""  # noqa: PLR2004
        return (
            f"<h1>{noun} {number}, {colour}</h1><b class={css}>{price}.00</b>{weight}"
            f"<i class=place>{made.choice(['Sofia', 'Plovdiv', 'Varna', 'Ruse'])}</i>"
            f"<p class=text>A {colour} {noun.lower()} in good condition, with all its parts.</p>"
            f'<img src="/photo/{number}.jpg">'
        )


def _page(body: str) -> web.Response:
    text = f"<!doctype html><html><head><title>Shop</title></head><body>{body}</body></html>"
    return web.Response(text=text, content_type="text/html")


SHOPS = {
    "bikes": Shop("127.0.0.2", ["City bike", "Touring bike", "Folding bike", "Tandem"]),
    "garden-tools": Shop("127.0.0.3", ["Spade", "Rake", "Shears", "Hoe"]),
    "boats": Shop("127.0.0.4", ["Kayak", "Dinghy", "Canoe"]),
    "used-cars": Shop("127.0.0.5", ["Estate car", "Van", "Hatchback"], count=80),
    "coins": Shop("127.0.0.6", ["Penny", "Ducat", "Thaler"]),
    "antiques": Shop("127.0.0.7", ["Chair", "Lamp", "Clock", "Mirror"]),
    "instruments": Shop("127.0.0.8", ["Violin", "Trumpet", "Accordion"], count=2000),
}
TROUBLES = {
    "garden-tools": "redesigned",
    "boats": "down",
    "used-cars": "partial",
    "coins": "invalid",
    "antiques": "banned",
}
MANIFEST = """\
manifest: html
name: {name}
about: "{about}"
parameters:
  base_url: {url}
start: "{{base_url}}/"
items: .list a@href
key: {{url: '/item/(\\d+)'}}
retry: {{attempts: 2, base: 0.1, max: 0.2}}
fresh: 24h
schedule: {{{schedule}}}
fields:
  title: {{css: h1, required: true}}
  price: {{css: .price, type: number}}
  weight_kg: {{css: .weight, type: integer}}
  place: .place
  text: .text
  photo: img@src
pipeline:
  - validate:
      properties: {{price: {{type: [number, "null"], minimum: 0}}}}
"""
SCHEDULES = (
    'cron: "30 3 * * *", timezone: Europe/Sofia',
    "every: 6h",
    'cron: "15 */4 * * *"',
    'cron: "0 22 * * 1-5", timezone: Europe/Berlin',
    "every: 90m",
)
FLOW = """\
flow: nightly-bikes
about: Collect, check, ask, publish.
on_failure: compensate
params: {limit: 40}
steps:
  - name: collect
    run: {source: SOURCES/bikes.yaml, limit: 40, states: partial}
  - name: enough
    check: {source: bikes, records: {min: 10}}
    after: collect
  - name: rates
    command: ["true"]
    after: collect
    optional: true
  - name: approve
    approve: "Publish the bikes of tonight?"
    after: [enough, rates]
  - name: publish
    export: {to: bikes.jsonl, source: bikes}
    undo: restore
"""
FAILING_FLOW = """\
flow: weekly-report
about: Summarise all sources.
steps:
  - name: check
    check: {source: quotes, records: {min: 100000}}
  - name: send
    command: ["true"]
"""
LINES = (
    ("antiques", "a challenge was answered instead of a page"),
    ("antiques", "circuit breaker opened"),
    ("boats", "the list of items was not found"),
    ("used-cars", "a response was cut off"),
    ("used-cars", "request failed, retrying"),
    ("garden-tools", "a selector matches nothing"),
    ("coins", "a value breaks a rule"),
    ("bikes", "robots.txt asks for a lower rate"),
)


@contextlib.asynccontextmanager
async def serving_shops(port: int) -> AsyncIterator[None]:
    """Serve each shop at its own address of this machine."""
    async with contextlib.AsyncExitStack() as closing:
        for shop in SHOPS.values():
            app = web.Application()
            app.add_routes(
                [web.get("/", shop.respond), web.get(r"/item/{number:\d+}", shop.respond)]
            )
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            closing.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, shop.host, port).start()
        yield


# ---------------- The home


class PastClock(SystemClock):
    """The clock of this machine, some seconds ago."""

    def __init__(self, ago: float) -> None:
        self._ago = ago

    def now(self) -> float:
        return super().now() - self._ago


def write_files(home: Path, practice_url: str, port: int) -> Settings:
    """Write manifests, flows and settings."""
    sources, flows = home / "sources", home / "flows"
    sources.mkdir(parents=True)
    flows.mkdir()
    for name in EXAMPLES:
        text = (ROOT / "examples" / f"{name}.yaml").read_text()
        text = text.replace("http://127.0.0.1:8765", practice_url)
        (sources / f"{name}.yaml").write_text(text)
    for place, (name, shop) in enumerate(SHOPS.items()):
        text = MANIFEST.format(
            name=name,
            about=f"{', '.join(shop.nouns)}: prices, weights and places.",
            url=f"http://{shop.host}:{port}",
            schedule=SCHEDULES[place % len(SCHEDULES)],
        )
        (sources / f"{name}.yaml").write_text(text)
    (flows / "nightly-bikes.yaml").write_text(FLOW.replace("SOURCES", str(sources)))
    (flows / "weekly-report.yaml").write_text(FAILING_FLOW)
    (home / "longline.yaml").write_text(
        "home: data\nsources: [sources]\nflows: [flows]\ncontact: mail@longline.example\n"
        "executor_jobs: 6\nschedules:\n"
        "  nightly-bikes: {flow: flows/nightly-bikes.yaml, cron: '0 2 * * *'}\n"
        "  quotes-daily: {source: quotes, cron: '0 12 * * *'}\n"
    )
    (home / "port").write_text(str(port))
    os.chdir(home)
    return load_settings()


async def run_history(settings: Settings) -> None:
    """Run all sources several times, as if on different days."""
    names = [*EXAMPLES, *SHOPS]
    for run in range(RUNS):
        left = RUNS - 1 - run
        for name, shop in SHOPS.items():
            shop.run = run
            shop.trouble = TROUBLES.get(name, "") if not left or (name, run) == ("boats", 8) else ""
        clock = PastClock(left * HOURS * 3600 + 2400)
        chosen = [one for one in names if one in SHOPS or left % 4 == 0]
        async with Orchestrator(settings=settings, clock=clock, rate="unlimited") as orchestrator:
            await asyncio.gather(*(_run(orchestrator, name) for name in chosen))


async def _run(orchestrator: Orchestrator, name: str) -> None:
    limit = {"instruments": 60, "listings": 250}.get(name.partition("_")[0])
    params = {} if limit is None else {"limit": limit}
    try:
        async with asyncio.timeout(60):
            await orchestrator.execute(f"sources/{name}.yaml", params)
    except LonglineError as error:
        sys.stderr.write(f"{name}: {error}\n")


async def add_the_rest(settings: Settings, store: Store) -> None:
    """Add duplicates with decisions, runs of flows, and tokens."""
    clock = SystemClock()
    rules = read_rules(ROOT / "examples" / "listings_match.yaml")
    await find_duplicates(store.matches, rules, clock=clock)
    for name in ("nightly-bikes", "weekly-report"):
        flow = load_flow(f"flows/{name}.yaml", settings)
        await start_flow(store, flow, {}, at=clock.now(), origin="schedule")
    for name, role, days in (
        ("grafana", "read", 90),
        ("anna", "admin", None),
        ("ci", "operate", 30),
    ):
        seconds = None if days is None else days * 86_400.0
        new = NewCredential(CredentialKind.TOKEN, name, Role(role), seconds)
        await store.credentials.create(new, clock.now() - 3 * 86_400)
    await store.credentials.revoke("ci", clock.now())
    lines = [
        LogLine(
            clock.now() - 60 * (len(LINES) - place),
            logging.ERROR if place % 4 == 3 else logging.WARNING,  # noqa: PLR2004  # some
            "longline",
            message,
            source=source,
            domain=f"{SHOPS[source].host}:80",
            fields={"attempt": place},
        )
        for place, (source, message) in enumerate(LINES)
    ]
    await asyncio.wrap_future(store.logs.add_soon(lines, max_per_job=None))


# ---------------- The server, with jobs that run


@contextlib.asynccontextmanager
async def serving_home() -> AsyncIterator[str]:
    """Run `longline serve` in the home; yield the link that opens it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    log = Path("serve.log").open("w")  # noqa: SIM115, ASYNC230  # closed below
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "longline", "serve", "--address", f"127.0.0.1:{port}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
    )
    try:
        assert process.stdout is not None  # noqa: S101  # piped
        async with asyncio.timeout(60):
            await process.stdout.readline()
            link = (await process.stdout.readline()).decode().partition("http://")[2].strip()
        yield f"http://{link}"
    finally:
        process.terminate()
        await process.wait()
        log.close()


async def start_jobs(settings: Settings, practice: PracticeWeb) -> None:
    """Submit jobs that run for some minutes, and pause one of them."""
    addresses = {
        "site_url": practice.site_url,
        "api_url": practice.api_url,
        "youtube_url": practice.youtube_url,
        "transcripts": False,
    }
    async with Orchestrator(settings=settings, stores_logs=False) as orchestrator:
        launch = orchestrator.launch
        await launch("n8n", {"set": addresses, "rate": 6, "burst": 2})
        await launch("sources/instruments.yaml", {"rate": 5})
        news = await launch("sources/news.yaml", {"rate": 1, "limit": 300})
        async with asyncio.timeout(60):
            job = None
            while job is None:
                await asyncio.sleep(0.5)
                found = await orchestrator.store.launches.get(news.id)
                job = found.target if found is not None else None
            await asyncio.sleep(4)
        await orchestrator.pause(job)


# ---------------- Screenshots


async def pages_of(store: Store) -> dict[str, str]:
    """Return the pages to take, with the paths of examples from the home."""
    jobs = await store.jobs.list(limit=100)

    def job(source: str) -> str:
        return next(one.id for one in jobs if one.source == source)

    def runs_of(flow: str) -> Any:
        return store.flows.list(flow=flow, limit=1)

    record = next(
        row
        for row in await store.records.list(RecordQuery(source="bikes"))
        if row["version"] > 2  # noqa: PLR2004  # versions
    )
    coins = job("coins")
    held = await store.quarantine.held(coins, text="", after=0, limit=1)
    [flow] = await runs_of("nightly-bikes")
    alerts = await store.alerts.list()
    return {
        "home": "/",
        "sources": "/sources",
        "source": "/sources/bikes",
        "source-drifted": "/sources/garden-tools",
        "source-edit": "/sources/edit?file=sources/bikes.yaml",
        "source-new": "/sources/new",
        "jobs": "/jobs",
        "job-running": f"/jobs/{job('instruments')}",
        "job-partial": f"/jobs/{job('used-cars')}",
        "job-items": f"/jobs/{job('used-cars')}/items?state=failed",
        "job-report": f"/jobs/{job('used-cars')}/report",
        "records": "/records?source=bikes",
        "record": f"/records/one?source=bikes&key={record['key']}",
        "schedules": "/schedules",
        "schedule": "/schedules/bikes",
        "flows": "/flows",
        "flow": f"/flows/{flow.id}",
        "flow-definition": "/flows/nightly-bikes",
        "domains": "/domains",
        "proxies": "/proxies",
        "quarantine": "/quarantine",
        "quarantine-job": f"/quarantine?job={coins}",
        "quarantine-item": f"/quarantine/item?job={coins}&key={held[0].item.key}",
        "duplicates": "/duplicates",
        "alerts": "/alerts",
        **({"alert": f"/alerts/{alerts[0].id}"} if alerts else {}),
        "alerts-resolved": "/alerts/resolved",
        "alerts-rules": "/alerts/rules",
        "alerts-deliveries": "/alerts/deliveries",
        "logs": "/logs",
        "events": "/events",
        "events-audit": "/events/audit",
        "events-subscribers": "/events/subscribers",
        "workers": "/workers",
        "settings": "/settings",
        "not-found": "/sources/none",
    }


async def take_all(link: str, store: Store, folder: Path, only: Sequence[str]) -> None:
    """Take all pages in all variants."""
    pages = await pages_of(store)
    chosen = {name: path for name, path in pages.items() if not only or name in only}
    origin = link.partition("/login")[0]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(link)
        state = await context.storage_state()
        await context.close()
        for variant in VARIANTS:
            context = await browser.new_context(
                storage_state=state,
                color_scheme=variant.scheme,
                viewport={"width": variant.width, "height": variant.height},
                reduced_motion="reduce",
            )
            for name, path in chosen.items():
                page = await context.new_page()
                await _take(page, variant, origin + path, folder / f"{name}-{variant.name}.png")
                await page.close()
            await context.close()
        await browser.close()


async def _take(page: Page, variant: Variant, url: str, file: Path) -> None:
    problems: list[str] = []
    page.on("console", lambda one: problems.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    await page.goto(url, wait_until="load")
    await page.wait_for_timeout(400)  # charts, and times of the browser
    width = await page.evaluate("document.documentElement.scrollWidth")
    if width > variant.width:
        problems.append(f"it is {width} px wide")
    await page.screenshot(path=file, full_page=True)
    for problem in problems:
        sys.stderr.write(f"{file.name}: {problem}\n")


async def main(folder: Path, home: Path, only: Sequence[str]) -> None:
    """Fill the home, serve it, and take the screenshots."""
    is_filled = home.exists()  # noqa: ASYNC240  # nothing else runs yet
    # The manifests of a home that was filled before have the addresses of its sites.
    port = int((home / "port").read_text()) if is_filled else 0  # a small file
    async with PracticeWeb(WebOptions(items=500), port=port) as practice:
        port = int(practice.url.rpartition(":")[2])
        async with serving_shops(port):
            if is_filled:
                os.chdir(home)
                settings = load_settings()
            else:
                settings = write_files(home, practice.url, port)
                await run_history(settings)
            with open_store(settings.database) as store:
                async with serving_home() as link:
                    await start_jobs(settings, practice)
                    if not await store.credentials.tokens():
                        await add_the_rest(settings, store)
                    await asyncio.sleep(25)  # alerts are evaluated, and the flow waits
                    await take_all(link, store, folder, only)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make screenshots of the dashboard.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    made = given.home or Path(tempfile.mkdtemp(prefix="longline-"))
    try:
        given.folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(main(given.folder.resolve(), made.resolve() / "home", given.only))
    finally:
        if given.home is None:
            shutil.rmtree(made)
