"""longline schedule: added, listed, run, backfilled and removed from the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from longline.core.errors import BadFile, BadOption, ConfigError
from longline.sources.loader import UnknownSource
from longline.storage.scheduling.schedules import ScheduleOfFile, UnknownSchedule
from tests.cli.terminal import Answer, Terminal

MANIFEST = """\
manifest: html
name: prices
start: https://prices.test/
items: h3 a
fields: {title: h1}
"""


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "sources" / "prices.yaml"
    path.parent.mkdir()
    path.write_text(MANIFEST, "utf-8")
    return path


def add(longline: Terminal, name: str, *options: str) -> Answer:
    return longline("schedule", "add", name, *options, "--json")


def rows(longline: Terminal, *words: str) -> Any:
    answer = longline("schedule", *words, "--json")
    assert answer.code == 0, answer.err
    return answer.last


def test_schedules_of_files_and_commands_are_listed_together(
    longline: Terminal, prices: Path, shop: Path
) -> None:
    prices.write_text(MANIFEST + "schedule: {cron: '0 3 * * *', timezone: Europe/Sofia}\n", "utf-8")
    Path("longline.yaml").write_text("schedules: {hourly: {source: prices, every: 1h}}\n", "utf-8")
    add(longline, "shop", "--source", str(shop), "--calendar", "first Monday 06:00")

    found = {one["name"]: one["origin"] for one in rows(longline, "list")}

    assert {name: Path(origin).name for name, origin in found.items()} == {
        "hourly": "longline.yaml",
        "prices": "prices.yaml",
        "shop": "command",
    }


def test_every_option_is_part_of_the_definition(longline: Terminal, prices: Path) -> None:
    prices.write_text(MANIFEST + "parameters: {depth: 1}\n", "utf-8")
    options = {
        "--source": "prices",
        "--after": "flow:daily",
        "--states": "partial",
        "--within": "2h",
        "--set": "depth=2",
        "--timezone": "Europe/Sofia",
        "--start": "2026-01-01",
        "--end": "2099-01-01",
        "--exclude": "2027-12-24..2027-12-26",
        "--jitter": "5m",
        "--overlap": "queue_one",
        "--misfire": "all",
        "--max-age": "2d",
        "--max-count": "3",
        "--pause-after-failures": "4",
        "--priority": "7",
    }
    add(longline, "after", *(word for pair in options.items() for word in pair))

    definition = rows(longline, "show", "after")["definition"]

    assert definition == {
        "name": "after",
        "source": "prices",
        "after": {"flow": "daily", "states": "partial", "within": 7200.0},
        "set": {"depth": "2"},
        "timezone": "Europe/Sofia",
        "start": "2026-01-01",
        "end": "2099-01-01",
        "exclude": [{"from": "2027-12-24", "to": "2027-12-26"}],
        "jitter": 300.0,
        "overlap": "queue_one",
        "misfire": {"policy": "all", "max_age": 172800.0, "max_count": 3},
        "pause_after_failures": 4,
        "priority": 7,
    }


@pytest.mark.parametrize(
    ("options", "kind", "option"),
    [
        (("--source", "prices", "--cron", "61 * * * *"), BadOption, "--cron"),
        (("--source", "prices", "--cron", "0 0 30 2 *"), BadOption, "--cron"),
        (("--source", "prices", "--calendar", "someday"), BadOption, "--calendar"),
        (("--source", "prices", "--every", "0"), BadOption, "--every"),
        (("--source", "prices", "--at", "2020-01-01"), BadOption, "--at"),
        (("--source", "prices", "--every", "1h", "--end", "2020-01-01"), BadOption, "--end"),
        (
            ("--source", "prices", "--every", "1h", "--timezone", "Europe/Sofija"),
            BadOption,
            "--timezone",
        ),
        (("--source", "prices", "--every", "1h", "--within", "1h"), BadOption, "--within"),
        (("--source", "prices", "--after", "prices"), BadOption, "schedule"),
        (("--source", "prices", "--on", "nosuch.event"), BadOption, "--on"),
        (("--source", "prices"), BadOption, "schedule"),
        (("--every", "1h"), BadOption, "schedule"),
        (("--source", "nosuch", "--every", "1h"), UnknownSource, None),
        (("--source", "nosuch.py", "--every", "1h"), BadOption, "source"),
        (("--flow", "nosuch", "--every", "1h"), BadOption, "FLOW"),
        (("--job", "nosuch.yaml", "--every", "1h"), BadFile, None),
        (("--source", "prices", "--set", "nosuch=1", "--param", "a=1"), BadOption, "schedule"),
        (("--source", "prices", "--every", "1h", "--set", "nosuch=1"), BadOption, "--set nosuch"),
    ],
)
@pytest.mark.usefixtures("prices")
def test_a_bad_definition_is_one_error(
    longline: Terminal, options: tuple[str, ...], kind: type[ConfigError], option: str | None
) -> None:
    answer = add(longline, "bad", *options)

    assert (answer.code, type(answer.error)) == (2, kind)
    assert getattr(answer.error, "option", None) == option
    assert len(answer.err.splitlines()) == 1
    assert rows(longline, "list") == []


@pytest.mark.usefixtures("prices")
def test_a_circle_is_refused(longline: Terminal) -> None:
    add(longline, "one", "--source", "prices", "--after", "n8n")

    answer = add(longline, "two", "--source", "n8n", "--after", "prices")

    assert (answer.code, type(answer.error)) == (2, BadOption)


def test_a_manifest_that_follows_itself_is_refused(longline: Terminal, prices: Path) -> None:
    answer = add(longline, "again", "--source", str(prices), "--after", "prices")

    assert (answer.code, type(answer.error)) == (2, BadOption)


def test_a_schedule_that_cannot_run_says_so(longline: Terminal, prices: Path) -> None:
    add(longline, "often", "--source", "prices", "--every", "1h")
    prices.unlink()

    (listed,) = rows(longline, "list")

    assert listed["problem"]


@pytest.mark.parametrize(
    ("trigger", "is_known"),
    [
        (("--after", "n8n"), True),
        (("--after", "nosuch"), False),
        (("--after", "flow:daily"), True),
        (("--after", "flow:nosuch"), False),
        (("--on", "drift.*", "--on-source", "nosuch"), False),
        (("--on", "drift.*"), True),
    ],
)
@pytest.mark.usefixtures("prices")
def test_an_unknown_trigger_is_noted(
    longline: Terminal, tmp_path: Path, trigger: tuple[str, ...], *, is_known: bool
) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    (flows / "daily.yaml").write_text("flow: daily\nsteps: [{name: a, command: [x]}]\n", "utf-8")

    answer = add(longline, "waiting", "--source", "prices", *trigger)

    assert answer.code == 0
    assert ("unknown" in answer.err) is not is_known


@pytest.mark.usefixtures("prices")
def test_the_next_run_is_not_an_excluded_one(longline: Terminal) -> None:
    year = datetime.now(UTC).year
    days = (f"{year}-01-01", f"{year + 1}-01-01")
    exclusions = (word for day in days for word in ("--exclude", day))
    add(longline, "yearly", "--source", "prices", "--cron", "0 6 1 1 *", *exclusions)

    (listed,) = rows(longline, "list")

    assert datetime.fromisoformat(listed["next"]).year == year + 2


def test_the_schedule_of_a_file_is_removed_there(longline: Terminal, prices: Path) -> None:
    prices.write_text(MANIFEST + "schedule: {every: 1h}\n", "utf-8")

    answer = longline("schedule", "remove", "prices")
    prices.write_text(MANIFEST, "utf-8")

    assert isinstance(answer.error, ScheduleOfFile)
    assert str(prices) in answer.err
    assert rows(longline, "list") == []


def test_an_invalid_file_is_a_note_and_changes_nothing(longline: Terminal, prices: Path) -> None:
    prices.write_text(MANIFEST + "schedule: {every: 1h}\n", "utf-8")
    rows(longline, "list")
    prices.write_text(MANIFEST + "schedule: {every: soon}\n", "utf-8")

    listed = longline("schedule", "list", "--json")
    validated = longline("config", "validate", str(prices))

    assert (len(listed.last), listed.err.count(f"{prices}:6:")) == (1, 1)
    assert (validated.code, f"{prices}:6:" in validated.err) == (2, True)


@pytest.mark.usefixtures("prices")
def test_a_schedule_is_paused_run_and_resumed(longline: Terminal) -> None:
    add(longline, "often", "--source", "prices", "--every", "1h")

    paused = rows(longline, "pause", "often", "--reason", "a test")
    started = rows(longline, "run", "often")
    resumed = rows(longline, "resume", "often")

    assert (paused["paused"], resumed["paused"]) == ("a test", None)
    (one,) = rows(longline, "history", "often")
    assert (one, one["kind"], one["result"]) == (started, "manual", "queued")


@pytest.mark.usefixtures("prices")
def test_a_backfill_starts_each_occurrence_once(longline: Terminal) -> None:
    add(longline, "daily", "--source", "prices", "--cron", "0 3 * * *", "--exclude", "2026-03-03")
    words = ("backfill", "daily", "--from", "2026-03-01", "--to", "2026-03-05")

    planned = rows(longline, *words, "--dry-run")
    none = rows(longline, "history")
    done = rows(longline, *words)
    again = rows(longline, *words)

    assert none == []
    assert [row["action"] for row in planned] == [row["action"] for row in done] == ["start"] * 4
    assert [(row["before"], row["action"]) for row in again] == [("fired", "none")] * 4


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize(
    "words",
    [
        ("daily", "--from", "2026-03-05", "--to", "2026-03-01"),
        ("daily", "--from", "soon", "--to", "2026-03-01"),
        ("daily", "--from", "1990-01-01", "--to", "2026-03-01"),
        ("then", "--from", "2026-03-01", "--to", "2026-03-05"),
    ],
)
def test_a_range_that_cannot_be_filled_is_refused(
    longline: Terminal, words: tuple[str, ...]
) -> None:
    add(longline, "daily", "--source", "prices", "--cron", "0 3 * * *")
    add(longline, "then", "--source", "prices", "--after", "n8n")

    assert longline("schedule", "backfill", *words).code == 2


@pytest.mark.usefixtures("prices")
def test_next_marks_clock_changes_and_exclusions(longline: Terminal) -> None:
    options = ("--source", "prices", "--cron", "30 3 * * *", "--timezone", "Europe/Sofia")
    add(longline, "daily", *options)
    words = ("next", "daily", "--days", "400", "--limit", "500")
    day = rows(longline, *words)[1]["local"][:10]
    add(longline, "daily", *options, "--exclude", day)

    found = rows(longline, *words)

    assert [row["local"][:10] for row in found if row["excluded"]] == [day]
    assert {row["clock_change"] for row in found} == {None, "shifted", "first"}


@pytest.mark.parametrize("command", ["show", "remove", "pause", "resume", "run", "history", "next"])
def test_an_unknown_name_is_an_error(longline: Terminal, command: str) -> None:
    answer = longline("schedule", command, "nosuch")

    assert (answer.code, type(answer.error)) == (2, UnknownSchedule)


@pytest.mark.usefixtures("prices")
def test_tables_fit_into_80_columns(longline: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    options = ("--cron", "30 3 * * *", "--timezone", "Australia/Lord_Howe", "--jitter", "10m")
    add(longline, "a-rather-long-name-of-a-schedule", "--source", "prices", *options)
    longline("schedule", "run", "a-rather-long-name-of-a-schedule")

    lines = [
        line
        for command in ("list", "next", "history")
        for line in longline("schedule", command).out.splitlines()
    ]

    assert len(lines) > 5
    assert max(len(line.rstrip()) for line in lines) <= 80
