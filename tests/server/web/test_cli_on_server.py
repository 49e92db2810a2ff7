"""Commands with --server: they ask a running server, and say clearly when they cannot."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from longline.core.clock import SystemClock
from longline.engine.subscribers import read_events
from longline.orchestrator import Orchestrator
from longline.storage.access import CredentialKind, NewCredential, Role
from longline.storage.events.events import EventFilter
from tests.cli.terminal import SHOP, Answer, Terminal
from tests.command_tree import commands
from tests.server.served_home import COMMAND
from tests.server.web.conftest import Dashboard

Remote = Callable[..., Awaitable[Answer]]


async def token_of(dashboard: Dashboard, role: Role) -> str:
    new = NewCredential(CredentialKind.TOKEN, f"cli-{role}", role, None)
    _, secret = await dashboard.store.credentials.create(new, SystemClock().now())
    return secret


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    """The command line on another machine: it has no home."""
    away = tmp_path / "away"
    away.mkdir()
    monkeypatch.chdir(away)
    monkeypatch.setenv("LONGLINE_HOME", str(away / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    return Terminal(monkeypatch, capsys)


@pytest.fixture
async def remote(
    dashboard: Dashboard, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Remote]:
    """Run a command on the server of the dashboard, with the role operate."""
    monkeypatch.setenv("LONGLINE_TOKEN", await token_of(dashboard, Role.OPERATE))

    async def run(*words: str) -> Answer:
        return await asyncio.to_thread(terminal, *words, "--server", dashboard.url)

    yield run
    assert not (Path.cwd() / "home").exists()  # no command has opened a home here


@pytest.fixture
async def shop(dashboard: Dashboard, tmp_path: Path) -> str:
    """A job with three records, one failure; its id."""
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    async with Orchestrator(settings=dashboard.settings) as orchestrator:
        values = {"set": {"things": 4, "bad": "2"}}
        return (await orchestrator.execute(str(path), values)).job


# ---------------- Each command


async def test_jobs_are_listed_and_shown_as_in_a_home(
    remote: Remote, shop: str, dashboard: Dashboard, terminal: Terminal
) -> None:
    home = ("--home", str(dashboard.settings.home), "--json")

    listed, shown = await remote("jobs", "--json"), await remote("jobs", shop[:-2], "--json")
    local = await asyncio.to_thread(terminal, "jobs", *home)
    (row,) = listed.last

    assert row | {"is_abandoned": False} == local.last[0]
    assert shown.last["settings"]["set"] == {"things": 4, "bad": "2"}
    assert "job.created" in {one["type"] for one in shown.last["events"]}
    assert shop in (await remote("jobs")).out
    assert "job.created" in (await remote("jobs", shop)).out


async def test_records_are_listed_and_shown_as_in_a_home(
    remote: Remote, shop: str, dashboard: Dashboard, terminal: Terminal
) -> None:
    del shop
    home = ("--home", str(dashboard.settings.home), "--json")
    wanted = ("records", "list", "--source", "shop", "--where", "title~thing", "--where", "price>4")

    listed = await remote(*wanted, "--json")
    local = await asyncio.to_thread(terminal, *wanted, *home)
    shown = await remote("records", "show", "shop/1", "--json")
    local_shown = await asyncio.to_thread(terminal, "records", "show", "shop/1", *home)
    picked = await remote("records", "list", "--columns", "price,@version", "--limit", "1")

    assert listed.out == local.out
    assert len(listed.out.splitlines()) == 3
    assert shown.last | {"enrichments": []} == local_shown.last
    assert (await remote("records", "show", "1")).code == 0
    assert "price" in picked.out
    assert (await remote("records", "show", "nothing")).code == 2


async def test_a_run_is_submitted(remote: Remote, shop: str) -> None:
    del shop
    submitted = await remote(
        "run", "shop", "--detach", "--limit", "2", "--set", "things=5", "--json"
    )
    listed = await remote("launches", "list", "--open", "--json")
    shown = await remote("launches", "show", str(submitted.last["launch"]))
    cancelled = await remote("launches", "cancel", str(submitted.last["launch"]), "--json")

    assert (submitted.code, submitted.last["source"]) == (0, "shop")
    assert [one["id"] for one in listed.last] == [submitted.last["launch"]]
    assert "source shop" in shown.out
    assert cancelled.last["result"] == "cancelled"
    assert "cancelled" in (await remote("launches", "list")).out


@pytest.mark.parametrize(
    "words",
    [
        ("run", "n8n", "--export", "a.csv"),
        ("run", "n8n", "--no-cache"),
        ("run", "n8n", "--fresh"),
        ("run", "n8n", "--rate", "auto"),
        ("run", "--all"),
        ("resume",),
        ("resume", "x", "--from-key", "1"),
        ("retry", "x", "--engine", "local"),
        ("records", "list", "--order", "price"),
        ("records", "show", "1", "--as-of", "2026-11-01"),
    ],
)
def test_what_a_server_cannot_do_is_refused(terminal: Terminal, words: tuple[str, ...]) -> None:
    answer = terminal(*words, "--server", "http://127.0.0.1:1")

    assert answer.code == 2
    assert answer.out == ""
    assert "http://127.0.0.1:1" not in answer.err  # which is not there, and was not asked


async def test_what_the_server_does_not_know_is_refused(remote: Remote) -> None:
    unknown, job = await remote("run", "nothing", "--detach"), await remote("pause", "nothing")

    assert (unknown.code, job.code) == (2, 2)
    assert (unknown.out, job.out) == ("", "")


async def test_events_of_a_server_are_followed(
    dashboard: Dashboard, shop: str, terminal: Terminal
) -> None:
    del terminal  # the folder
    words = ("events", "follow", "--after", "0", "--type", "job.*", "--json")
    following = await asyncio.create_subprocess_exec(
        *COMMAND,
        *words,
        "--server",
        dashboard.url,
        env={**os.environ, "LONGLINE_TOKEN": await token_of(dashboard, Role.READ)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert following.stdout is not None

    first = json.loads(await following.stdout.readline())
    following.send_signal(signal.SIGINT)
    await following.communicate()

    assert (first["type"], first["job"]) == ("job.created", shop)
    assert following.returncode == 130


async def test_failed_items_are_retried_and_the_job_is_controlled(
    remote: Remote, shop: str, dashboard: Dashboard
) -> None:
    retried = await remote("retry", shop, "--kind", "bug", "--json")
    paused = await remote("pause", shop)
    resumed = await remote("resume", shop)
    cancelled = await remote("cancel", shop, "--json")
    again = await remote("cancel", shop)

    assert (retried.code, retried.last["job"]) == (0, shop)
    assert retried.last["launch"] is not None
    assert (paused.code, resumed.code) == (0, 0)
    assert cancelled.last["state"] == "cancelled"
    assert "already cancelled" in again.out
    assert (await dashboard.store.jobs.get(shop)).state == "cancelled"


async def test_schedules_are_paused_resumed_and_run(
    remote: Remote, shop: str, dashboard: Dashboard, terminal: Terminal, tmp_path: Path
) -> None:
    del shop
    home = ("--home", str(dashboard.settings.home), "--json")
    add = ("schedule", "add", "daily", "--source", str(tmp_path / "shop.py"), "--cron", "0 3 * * *")
    await asyncio.to_thread(terminal, *add, *home)

    listed = await remote("schedule", "list", "--json")
    local = await asyncio.to_thread(terminal, "schedule", "list", *home)
    paused = await remote("schedule", "pause", "daily", "--reason", "why", "--json")
    resumed = await remote("schedule", "resume", "daily")
    started = await remote("schedule", "run", "daily", "--json")

    assert listed.last == local.last
    assert "daily" in (await remote("schedule", "list")).out
    assert paused.last["paused"] == "why"
    assert "next run" in resumed.out
    assert started.last["launch"] is not None


async def test_health_has_the_exit_code_of_its_state(remote: Remote) -> None:
    answer = await remote("health", "--json")

    codes = {"ok": 0, "degraded": 3, "failed": 1}
    assert answer.code == codes[answer.last["state"]]
    assert answer.last["checks"]


async def test_alerts_are_listed(remote: Remote) -> None:
    assert (await remote("alerts", "list", "--all", "--json")).last == {"alerts": []}
    assert "no alerts" in (await remote("alerts", "list")).out


# ---------------- Errors, and commands without a server


async def test_a_wrong_token_and_a_wrong_role_are_one_sentence(
    remote: Remote, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = await remote("jobs", "--token", "ll_wrong")
    monkeypatch.setenv("LONGLINE_TOKEN", await token_of(dashboard, Role.READ))
    reading = await remote("jobs")
    forbidden = await remote("run", "n8n", "--detach")

    assert (wrong.code, reading.code, forbidden.code) == (2, 0, 2)
    assert len(wrong.err.splitlines()) == len(forbidden.err.splitlines()) == 1
    assert "longline tokens add" in wrong.err
    assert "operate" in forbidden.err


def test_a_server_that_is_not_there_is_one_sentence(terminal: Terminal) -> None:
    answer = terminal("jobs", "--server", "http://127.0.0.1:1")

    assert answer.code == 2
    assert len(answer.err.splitlines()) == 1
    assert "http://127.0.0.1:1" in answer.err


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "--server", "127.0.0.1:8400"),
        ("jobs", "--token", "ll_x"),
        ("jobs", "--server", "http://127.0.0.1:1", "--home", "home"),
    ],
)
def test_options_that_name_no_server_are_refused(terminal: Terminal, words: tuple[str]) -> None:
    assert terminal(*words).code == 2


@pytest.mark.parametrize(
    "words", [("export", "--format", "csv"), ("drift",), ("tokens", "list"), ("serve", "--once")]
)
def test_a_command_without_server_refuses_one(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    named = terminal(*words, "--server", "http://127.0.0.1:1")
    monkeypatch.setenv("LONGLINE_SERVER", "http://127.0.0.1:1")
    inherited = terminal(*words)

    assert (named.code, inherited.code) == (2, 2)
    assert len(inherited.err.splitlines()) == 1
    assert not (Path.cwd() / "home").exists()


def test_a_home_on_the_command_line_outweighs_the_environment(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LONGLINE_SERVER", "http://127.0.0.1:1")

    assert terminal("jobs", "--home", str(tmp_path / "other"), "--json").last == []


def test_the_pages_name_all_commands_that_use_a_server() -> None:
    page = (Path(__file__).parents[3] / "docs" / "server.md").read_text("utf-8")
    section = page.partition("## From the command line")[2].partition("\n## ")[0]

    able = {
        " ".join(path)
        for path, command in commands().items()
        if any(
            one.name == "server_url" and not getattr(one, "hidden", True) for one in command.params
        )
    }

    assert able == set(re.findall(r"^\| `longline ([a-z ]+?)`", section, re.MULTILINE))


# ---------------- A run that is followed to its end


async def run_next_launch(dashboard: Dashboard, after: int) -> None:
    """Wait for a launch, and run it as an executor does."""
    clock, wanted = SystemClock(), EventFilter(("access.used",))
    await anext(aiter(read_events(dashboard.store, clock, wanted, after)))
    (placed,) = await dashboard.store.launches.list(is_open=True)
    now = clock.now()
    leased = await dashboard.store.launches.lease_one(placed.id, "test", now, now + 60)
    assert leased is not None
    async with Orchestrator(settings=dashboard.settings) as orchestrator:
        await orchestrator.run_launch(leased)


async def test_a_run_on_a_server_is_followed_to_its_end(
    remote: Remote, shop: str, dashboard: Dashboard
) -> None:
    newest = await dashboard.store.events.newest()
    executing = asyncio.create_task(run_next_launch(dashboard, newest))

    report = await remote("run", "shop", "--set", "bad=1", "--json")
    await executing

    assert (report.code, report.last["state"], report.last["source"]) == (3, "partial", "shop")
    assert (report.last["stored"], report.last["unchanged"], report.last["failed"]) == (1, 1, 1)
    assert report.last["job"] != shop


async def test_the_end_of_a_run_on_a_server_is_shown(
    remote: Remote, shop: str, dashboard: Dashboard
) -> None:
    del shop
    newest = await dashboard.store.events.newest()
    executing = asyncio.create_task(run_next_launch(dashboard, newest))

    shown = await remote("run", "shop", "--set", "bad=")
    await executing

    assert shown.code == 0
    assert "complete" in shown.out
    assert "launch" in shown.err
