"""`longline run`: exit codes, the last line of `--json`, stopping and resuming."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longline.cli.commands.run import run_command
from longline.cli.progress import run_job
from longline.config.settings import Settings
from longline.engine.report import JobReport
from longline.orchestrator import Orchestrator
from tests.cli.terminal import Terminal
from tests.virtual import VirtualClock

FIELDS = {
    *("job", "source", "state", "discovered", "stored", "unchanged", "skipped", "failed"),
    *("quarantined", "requests", "retries", "rate_limited", "seconds", "success_rate", "output"),
}
ENDS = ("stored", "unchanged", "skipped", "failed", "quarantined", "remaining")
UNREACHABLE = {"site_url": "http://127.0.0.1:9", "api_url": "http://127.0.0.1:9"}
PROGRAM = (sys.executable, "-c", "from longline.cli.main import main; main()")
SLOW = """
import asyncio

from longline import Item, Source, layer

class Slow(Source):
    name = "slow"

    async def discover(self, visit):
        for number in range(1000):
            yield Item(str(number), "https://slow.test")

    @layer()
    async def page(self, visit):
        await asyncio.sleep(0.02)
        return {"n": visit.item.key}
"""


def test_the_last_line_of_json_is_the_contract(longline: Terminal, shop: Path) -> None:
    answer = longline("run", shop, "--json")

    last = answer.last
    assert set(last) >= FIELDS
    assert answer.err == ""
    assert answer.out.count("\n") == 1
    assert (last["source"], last["state"], last["stored"]) == ("shop", "complete", 3)
    assert last["discovered"] == sum(last[name] for name in ENDS)
    assert (last["success_rate"], last["output"]) == (1.0, None)


@pytest.mark.parametrize(
    ("setting", "code", "state"),
    [
        ("bad=", 0, "complete"),
        ("bad=1", 3, "partial"),
        ("bad=0+1+2", 1, "failed"),
        ("broken=true", 1, "failed"),
        ("closed=true", 4, "paused"),
        ("things=0", 0, "complete"),
    ],
)
def test_the_exit_code_says_how_it_ended(
    longline: Terminal, shop: Path, setting: str, code: int, state: str
) -> None:
    answer = longline("run", shop, "--set", setting, "--json")

    assert answer.code == code
    assert answer.last["state"] == state
    assert answer.last["discovered"] == sum(answer.last[name] for name in ENDS)


def test_a_second_run_finds_everything_unchanged(longline: Terminal, shop: Path) -> None:
    first = longline("run", shop, "--json").last

    second = longline("run", shop, "--json").last

    assert first["job"] != second["job"]
    assert (second["stored"], second["unchanged"]) == (0, 3)


def test_a_limit_is_kept(longline: Terminal, shop: Path) -> None:
    assert longline("run", shop, "--limit", "2", "--json").last["discovered"] == 2


def test_a_person_gets_a_summary_that_adds_up(longline: Terminal, shop: Path) -> None:
    answer = longline("run", shop, "--set", "bad=1")

    (job,) = longline("jobs", "--json").last
    first, items, *_ = answer.out.splitlines()
    assert first.startswith("partial")
    assert job["reason"] in first
    assert job["job"] in first
    assert all(part in items for part in ("3 discovered", "2 stored", "1 failed"))
    assert "66.7%" in answer.out
    assert job["job"] in answer.err.splitlines()[0]


def test_a_paused_job_shows_how_to_resume(longline: Terminal, shop: Path) -> None:
    answer = longline("run", shop, "--set", "closed=true")

    (job,) = longline("jobs", "--json").last
    first, *_, last = answer.out.splitlines()
    assert first.startswith("paused")
    assert "robots.txt" in first
    assert "shop.test" in first
    assert f"longline resume {job['job']} --ignore-robots shop.test" in last


def test_ignore_robots_of_resume_is_stored_in_the_job(longline: Terminal, shop: Path) -> None:
    job = longline("run", shop, "--set", "closed=true", "--json").last["job"]

    longline("resume", job, "--ignore-robots", "a.test", "--ignore-robots", "b.test")
    longline("resume", job, "--ignore-robots", "c.test")

    result = longline("jobs", job, "--json").last
    assert result["settings"]["ignore_robots"] == ["a.test", "b.test", "c.test"]
    recorded = [
        one["data"]["ignore_robots"] for one in result["events"] if "ignore_robots" in one["data"]
    ]
    assert recorded[-1] == ["a.test", "b.test", "c.test"]


def test_the_same_settings_are_the_same_job_wherever_they_were_written(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"source: {shop}\nset:\n  closed: true\n  things: 5\n")
    first = longline("run", path, "--json").last["job"]

    words = ("run", shop, "--set", "closed=true", "--json")
    assert longline(*words, "--set", "things=5").last["job"] == first
    assert longline(*words, "--set", "things=5", "--set", "bad=").last["job"] == first
    assert longline(*words, "--set", "things=6").last["job"] != first
    assert longline("jobs", first, "--json").last["settings"]["set"] == {
        "closed": True,
        "things": 5,
    }


def test_the_same_command_resumes_the_job(longline: Terminal, shop: Path) -> None:
    words = ("run", shop, "--set", "closed=true", "--json")
    first = longline(*words).last["job"]

    assert longline(*words).last["job"] == first
    assert longline("resume", "--json").last["job"] == first
    assert longline("resume", first[:8], "--json").last["job"] == first
    assert longline("resume", "--checkpoint", "latest", "--json").last["job"] == first
    assert longline(*words, "--fresh").last["job"] != first


def test_a_job_file_runs_and_the_command_line_wins(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"source: {shop}\nlimit: 1\nset:\n  things: 9\n")

    assert longline("run", path, "--json").last["discovered"] == 1
    assert longline("run", path, "--limit", "4", "--json").last["discovered"] == 4


async def shown(
    home: Path, clock: VirtualClock, source: str, options: dict[str, Any], *, as_json: bool
) -> int:
    """Run as `longline run` does, but on virtual time."""
    orchestrator = Orchestrator(source, options, settings=Settings(home=home), clock=clock)

    async def start(hooks: dict[str, Any]) -> JobReport:
        return await orchestrator.execute(**hooks)

    with run_command.make_context("run", ["n8n", *["--json"] * as_json]):
        return await run_job(orchestrator, start)


async def test_a_site_that_cannot_be_reached_fails_the_job(
    tmp_path: Path, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await shown(tmp_path, clock, "n8n", UNREACHABLE, as_json=False)

    out, err = capsys.readouterr()
    assert code == 1
    assert out.startswith("failed")
    assert "http://127.0.0.1:9" in out
    assert "Traceback" not in out + err


def start(path: Path, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, "run", str(path), "--home", str(home), "--concurrency", "4"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.real_time
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_drains_the_run_which_can_be_resumed(
    tmp_path: Path, longline: Terminal, number: signal.Signals
) -> None:
    path = tmp_path / "slow.py"
    path.write_text(SLOW)
    process = start(path, tmp_path / "home")
    assert process.stderr is not None
    assert "slow-" in process.stderr.readline()
    process.stderr.readline()  # the first line of progress: work has begun

    process.send_signal(number)
    out, err = process.communicate()

    assert process.returncode == 130
    assert "Ctrl-C" in err
    assert out.startswith("paused")
    (job,) = longline("jobs", "--json").last
    assert (job["state"], job["leased"]) == ("paused", 0)
    assert job["stored"] == int(longline("records", "count").out)


@pytest.mark.real_time
def test_a_second_signal_stops_immediately(tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    path.write_text(SLOW.replace("0.02", "600"))
    process = start(path, tmp_path / "home")
    assert process.stderr is not None
    process.stderr.readline()
    process.stderr.readline()

    process.send_signal(signal.SIGINT)
    result = process.stderr.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.6)  # a signal within half a second of the first would not be a second one
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()

    assert "Ctrl-C" in result
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert process.returncode == 130
