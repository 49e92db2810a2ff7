"""Fuzz the HTTP API with schemathesis: `python bench/api_fuzz.py --examples 50 --seconds 180`.

A server with a small home gets random requests to every operation; exit with 1 when one of them
ends in a server error, or in a response that the OpenAPI document does not describe.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.large_home import Amounts, add_jobs, add_others
from tests.server.web.api.filled import Filled, fill
from tests.server.web.api.fuzzing import ENDLESS, Findings, fuzz
from tests.virtual import EPOCH

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.server.web.part import WebPart
from longline.storage.store import open_store

AMOUNTS = Amounts(
    jobs=60, items=25, sources=50, start=EPOCH - 86_400.0, interval=600.0, is_mixed=True
)
EXAMPLE_JOB = "shop-20261118-080000-ab12"
EXAMPLE_OPTIONS = '{"category":"shoes"}'
# The requests are those of a proxy's user: they revoke tokens.
HEADERS = {"X-Remote-User": "fuzz", "Sec-Fetch-Site": "same-origin"}
LISTS = {
    "job": ("jobs", "id"),
    "record": ("records", "id"),
    "launch": ("launches", "id"),
    "run": ("flow-runs", "id"),
    "domain": ("domains", "domain"),
    "alert": ("alerts", "id"),
    "source": ("drift", "source"),
}
PHASES = ("examples", "coverage", "fuzzing", "stateful")


@click.command()
@click.option("--examples", default=50, help="Random requests of each operation.")
@click.option("--seconds", type=int, help="Longest duration.")
@click.option("--seed", default=1, help="Of the random requests.")
@click.option("--phase", "phases", multiple=True, type=click.Choice(PHASES), default=PHASES)
def main(examples: int, seconds: int | None, seed: int, phases: tuple[str, ...]) -> None:
    """Send random requests, and print what they have found."""
    with tempfile.TemporaryDirectory(prefix="longline-api-fuzz-") as folder:
        settings = Settings(
            home=Path(folder) / "home",
            sources=(Path(folder) / "sources",),
            flows=(Path(folder) / "flows",),
            web_user_header="X-Remote-User",
            web_user_role="admin",
            web_trusted_proxies=("127.0.0.1",),
        )
        settings.home.mkdir()
        known = asyncio.run(_fill(settings))
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        # A process of its own, so that making requests does not delay the responses.
        server = multiprocessing.get_context("fork").Process(
            target=_serve, args=(settings, listener), daemon=True
        )
        server.start()
        try:
            text = _get(url, "openapi.json").replace(EXAMPLE_JOB, known.open_job)
            document = json.loads(text.replace(EXAMPLE_OPTIONS, "{}"))
            parameters = {**known.parameters(), **_parameters(url)}
            begun = time.monotonic()
            found = fuzz(
                document,
                url,
                HEADERS,
                seed=seed,
                phases=phases,
                known=parameters,
                examples=examples,
                seconds=seconds,
            )
            _print(document, found, time.monotonic() - begun)
        finally:
            server.terminate()
            server.join()
    sys.exit(1 if found.problems else 0)


async def _fill(settings: Settings) -> Filled:
    with open_store(settings.database) as store:
        known = await fill(settings, store)
        await add_jobs(store, AMOUNTS)
        await add_others(store, AMOUNTS, flows=settings.flows[0])
        return known


def _serve(settings: Settings, listener: socket.socket) -> None:
    asyncio.run(WebPart(settings, SystemClock(), listener).run())


def _get(url: str, path: str) -> str:
    request = urllib.request.Request(f"{url}/api/v1/{path}", headers=HEADERS)
    with urllib.request.urlopen(request, timeout=30) as response:
        text: str = response.read().decode()
    return text


def _parameters(url: str) -> dict[str, list[str | int]]:
    """Return values of the parameters of paths, from the first page of each list."""
    return {
        name: [one[field] for one in json.loads(_get(url, path))["items"]]
        for name, (path, field) in LISTS.items()
    }


def _print(document: dict[str, Any], found: Findings, seconds: float) -> None:
    operations = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method, about in methods.items()
        if about["operationId"] != ENDLESS
    }
    statuses = Counter[int]()
    for (_, status), count in found.statuses.items():
        statuses[status] += count
    shown = ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()))
    click.echo(f"{found.requests} requests to {len(operations)} operations in {seconds:.0f} s")
    click.echo(f"responses: {shown}")
    if missed := sorted(operations - found.successes()):
        click.echo(f"never successful: {', '.join(missed)}")
    for name, text in found.problems.items():
        click.echo(f"\n{name}\n{text}")
    click.echo(f"{len(found.problems)} problems")


if __name__ == "__main__":
    main()
