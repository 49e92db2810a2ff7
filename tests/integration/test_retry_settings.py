"""Retries as a job, a source or nobody sets them, counted at a server that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from longline.cli.commands.run import run_command
from longline.config.job_spec import make_spec
from longline.config.settings import Settings
from longline.core.errors import BadOption, ServerFailed
from longline.core.model import Usage
from longline.http.messages import Request
from longline.limits.retry import DEFAULT_RETRY
from longline.sources.base import Source
from longline.wiring import open_fetching, retry_policy
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock


class Plain(Source):
    name = "plain"
    rate = None


class Patient(Plain):
    name = "patient"
    retry: ClassVar[Any] = {"attempts": 5, "base": 2.0}


class Wrong(Plain):
    name = "wrong"
    retry: ClassVar[Any] = {"attempts": 0}


@pytest.mark.parametrize(
    ("source", "retry", "expected"),
    [
        (Plain, None, (3, 1 + 2)),
        (Plain, {"attempts": 1}, (1, 0)),
        (Plain, {"attempts": 4, "base": 10, "max": 15}, (4, 10 + 15 + 15)),
        (Patient, None, (5, 2 + 4 + 8 + 16)),
        (Patient, {"attempts": 2}, (2, 2)),
    ],
)
async def test_a_job_sets_attempts_and_waits_before_its_source(
    site: ScriptedSite,
    tmp_path: Path,
    *,
    source: type[Source],
    retry: dict[str, float] | None,
    expected: tuple[int, float],
) -> None:
    attempts, waits = expected
    clock = VirtualClock()
    site.says("/page", status=500)
    spec = make_spec({"source": source.name, "retry": retry, "ignore_robots": ["127.0.0.1"]})
    started = clock.now()

    async with open_fetching(Settings(home=tmp_path), spec, source, clock) as fetching:
        with pytest.raises(ServerFailed):
            await fetching.chain(Request(f"{site.url}/page"), Usage())

    assert site.hits["/page"] == attempts
    assert clock.now() - started == pytest.approx(waits, rel=0.11, abs=1)


def test_without_settings_the_default_policy_is_used() -> None:
    assert retry_policy(make_spec({"source": "plain"}), Plain) == DEFAULT_RETRY


def test_a_source_with_an_invalid_retry_is_refused() -> None:
    with pytest.raises(BadOption) as caught:
        retry_policy(make_spec({"source": "wrong"}), Wrong)

    assert caught.value.option == "retry.attempts"


def test_the_command_line_counts_retries_and_the_job_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    class Recorder:
        def __init__(self, **_options: Any) -> None:
            pass

        async def execute(self, _source: str, values: dict[str, Any], **_hooks: Any) -> None:
            seen.append(values)

    async def run_job(_orchestrator: Any, start: Any, **_options: Any) -> int:
        await start({})
        return 0

    monkeypatch.setattr("longline.cli.commands.run.Orchestrator", Recorder)
    monkeypatch.setattr("longline.cli.commands.run.run_job", run_job)

    CliRunner().invoke(run_command, ["plain", "--retries", "4", "--home", str(tmp_path)])

    assert [one["retry"] for one in seen] == [{"attempts": 5}]
