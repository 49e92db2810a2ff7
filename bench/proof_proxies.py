"""The proof that faults of proxies lose nothing, and are not blamed on the site."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from children import BENCH, LONGLINE, Children, failures
from home import Home
from proofs import (
    Figure,
    Proof,
    Sizes,
    Skipped,
    at_least,
    at_most,
    exactly,
    none,
    nothing_wrong,
    unjudged,
)
from real_proxies import HINT, are_installed, real_proxies

NAME = "proxies"
FAULTS = [
    *["dead"] * 5,
    *["silent"] * 5,
    *["slow"] * 10,
    *["auth"] * 2,
    *["gateway"] * 2,
    *["inject"] * 2,
    *["banned"] * 4,
    *["good"] * 10,
]
"""The fault of each of the 40 proxies."""
RATE = 50
BURST = 5
_SPARE = 5  # requests that the site allows beyond the burst: proxies delay some requests
_TIMEOUT = 10  # seconds
_SHARE = 0.8
_MOST_WASTED = 5.0  # percent
_TOO_MANY = "429"
_BANNED = [f"127.0.2.{number + 1}" for number in range(FAULTS.count("banned"))]
"""Addresses from which the real proxies connect that the site bans."""


@dataclass(frozen=True, slots=True)
class Web:
    """The running site and proxies: the site's URL, and each proxy with its fault."""

    url: str
    proxies: Sequence[tuple[str, str]]

    def addresses(self, *faults: str) -> list[str]:
        """Return the proxies with these faults; without any, all."""
        return [address for fault, address in self.proxies if not faults or fault in faults]

    def figures(self) -> Mapping[str, Any]:
        """Return what the site has counted."""
        with urllib.request.urlopen(f"{self.url}/figures") as answer:  # our own site
            return json.load(answer)


@contextmanager
def serving() -> Iterator[Web]:
    """Start a site and 40 proxies of our own in another process."""
    with _site(FAULTS) as (url, ports):
        yield Web(url, list(zip(FAULTS, map(_http, ports), strict=True)))


@contextmanager
def serving_real(folder: Path) -> Iterator[Web]:
    """Start a site and 40 proxies, real programs where a real program has the fault."""
    with real_proxies(folder, _BANNED) as real:
        behind = [address for address in real.good if address.startswith("http:")]
        made = [
            *(fault for fault in FAULTS if fault in ("dead", "silent", "gateway", "inject")),
            *(
                f"behind:{urlsplit(behind[number % len(behind)]).port}"
                for number in range(FAULTS.count("slow"))
            ),
        ]
        with _site(made, _BANNED) as (url, ports):
            named = [("slow" if ":" in fault else fault) for fault in made]
            found = list(zip(named, map(_http, ports), strict=True))
            for fault, addresses in (
                ("auth", real.auth),
                ("banned", real.banned),
                ("good", real.good),
            ):
                found += [(fault, address) for address in addresses]
            yield Web(url, found)


@contextmanager
def _site(faults: Sequence[str], banned: Sequence[str] = ()) -> Iterator[tuple[str, list[int]]]:
    """Start a site and proxies of our own; yield its URL and their ports."""
    command = [sys.executable, str(BENCH / "proxy_web.py"), ",".join(faults)]
    with subprocess.Popen(
        [*command, str(RATE), str(BURST + _SPARE), *banned],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None  # noqa: S101  # it is a pipe
        started = json.loads(process.stdout.readline())
        try:
            yield f"http://127.0.0.1:{started['site']}", started["proxies"]
        finally:
            process.kill()


def _http(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def prove(sizes: Sizes) -> Proof | Skipped:
    """Collect the pages through all proxies, and through the good ones alone."""
    if not are_installed():
        return Skipped(NAME, HINT)
    with tempfile.TemporaryDirectory() as folder:
        alone = _collect(sizes.proxied_pages, Path(folder) / "alone", "good")
        mixed = _collect(sizes.proxied_pages, Path(folder) / "mixed")
    pages = sizes.proxied_pages
    about = (
        f"A site allows {RATE} requests per second, and bans four addresses after 20 requests. Of "
        "40 proxies, 10 are dead (half of them accept connections and say nothing), 10 add 2 s, 2 "
        "require a login, 2 answer 502, 2 insert a page of their own, 4 are banned, and 10 work. "
        "Those that work, are banned or require a login are real: tinyproxy, microsocks (SOCKS5), "
        "pproxy (HTTP, SOCKS4, SOCKS5) and proxy.py; the slow ones are real ones behind a relay. "
        f"A job collects {pages:,} pages through all of them, with `--rate {RATE} --burst "
        f"{BURST} --concurrency 32 --timeout {_TIMEOUT}` and a pool that was never checked; "
        "another one uses the 10 alone."
    )
    return Proof(NAME, about, [*_figures(pages, mixed), *_shares(alone, mixed)])


@dataclass(frozen=True, slots=True)
class _Run:
    """A run: what the site counted, what the home has, and how the process ended."""

    site: Mapping[str, Any]
    counts: Mapping[str, float]
    events: Mapping[str, int]
    problems: Sequence[str]
    failed: Sequence[str]

    @property
    def rate(self) -> float:
        """Pages per second, from the first to the last."""
        return float(self.site["pages"] / self.site["seconds"])


def _collect(pages: int, folder: Path, *faults: str) -> _Run:
    home_folder = folder / "home"
    home_folder.mkdir(parents=True)
    with serving_real(folder / "proxies") as web, Children() as children:
        add_proxies(home_folder, web.addresses(*faults))
        command = [
            *(LONGLINE, "run", "proxied_source:Proxied", "--home", str(home_folder), "--json"),
            *("--set", f"base_url={web.url}", "--set", f"count={pages}"),
            *("--rate", str(RATE), "--burst", str(BURST), "--concurrency", "32"),
            *("--timeout", str(_TIMEOUT)),
        ]
        ended = children.start(command).wait(pages / RATE * 4 + 120)
        site = web.figures()
    home = Home(home_folder)
    statistics = dict(home.query("SELECT name, value FROM statistics"))
    events = dict(home.query("SELECT type, count(*) FROM events GROUP BY type"))
    return _Run(site, statistics, events, home.problems(pages), failures([ended]))


def add_proxies(home: Path, addresses: Sequence[str]) -> None:
    """Add proxies to the pool of a home."""
    code = (
        "import asyncio, sys\n"
        "from longline.config.settings import load_settings\n"
        "from longline.core.clock import SystemClock\n"
        "from longline.http.proxies.proxy import parse_proxy\n"
        "from longline.wiring import open_proxy_pool\n"
        "async def main():\n"
        "    settings = load_settings(home=sys.argv[1])\n"
        "    async with open_proxy_pool(settings, SystemClock()) as pool:\n"
        "        await pool.add(map(parse_proxy, sys.argv[2:]))\n"
        "asyncio.run(main())\n"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", code, str(home), *addresses], check=True, env=os.environ
    )


def _figures(pages: int, run: _Run) -> list[Figure]:
    requests = int(run.counts["proxied"])
    wasted = requests - pages - 1  # robots.txt
    return [
        nothing_wrong("each page is stored once", run.problems),
        nothing_wrong("the process exited with 0", run.failed),
        exactly("different pages that the site sent", run.site["pages"], pages),
        none("items that failed", run.events.get("item.failed", 0)),
        none("times that the breaker of the site opened", run.events.get("breaker.opened", 0)),
        none("responses with 429", run.site["statuses"].get(_TOO_MANY, 0)),
        unjudged("requests, with robots.txt", requests),
        at_most("requests without a page, in percent", 100 * wasted / requests, _MOST_WASTED),
        unjudged("of them failures of proxies", int(run.counts.get("proxy_failures", 0))),
        unjudged("of them bans", int(run.counts.get("proxy_bans", 0))),
        unjudged("quarantines of proxies", run.events.get("proxy.quarantined", 0)),
        unjudged("bans of proxies", run.events.get("proxy.banned", 0)),
    ]


def _shares(alone: _Run, mixed: _Run) -> list[Figure]:
    return [
        unjudged("pages per second with all 40 proxies", f"{mixed.rate:.1f}"),
        unjudged("pages per second with the 10 that work", f"{alone.rate:.1f}"),
        at_least("the first divided by the second", round(mixed.rate / alone.rate, 2), _SHARE),
    ]
