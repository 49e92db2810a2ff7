"""Every command has help, is listed and documented, and help is quick."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from longline.cli.main import COMMANDS, load_command
from longline.cli.options import JOB
from tests.cli.terminal import Terminal

ROOT = Path(__file__).parents[2]


def first_sentence(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").partition("\n\n")[0].replace("\n", " ")


def docs() -> str:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return "\n".join(page.read_text("utf-8") for page in pages)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_help(longline: Terminal, name: str) -> None:
    answer = longline(name, "--help")

    assert answer.code == 0
    assert answer.out.startswith(f"Usage: longline {name}")
    assert answer.err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_list_has_the_first_sentence_of_the_help(name: str) -> None:
    assert COMMANDS[name][1] == first_sentence(load_command(name))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_documented(name: str) -> None:
    assert f"longline {name}" in docs()


@pytest.mark.parametrize("name", COMMANDS)
def test_options_have_help(name: str) -> None:
    plain = {"--items", "--faults", "--missing", "--seed", "--host", "--port", "--limit"}
    plain |= {"--burst", "--engine"}

    silent = {
        option.opts[0]
        for option in load_command(name).params
        if isinstance(option, click.Option) and not option.help
    }

    assert silent <= plain


@pytest.mark.parametrize(
    "name",
    [
        *("list", "show", "search", "count", "stats", "quality"),
        *("versions", "diff", "changes", "history"),
    ],
)
def test_the_commands_of_records_have_help_too(longline: Terminal, name: str) -> None:
    answer = longline("records", name, "--help")

    assert answer.code == 0
    assert answer.out.startswith(f"Usage: longline records {name}")


def test_help_lists_every_command_and_the_exit_codes(longline: Terminal) -> None:
    answer = longline("--help")

    assert answer.code == 0
    assert [name for name in COMMANDS if f"\n  {name} " not in answer.out] == []
    assert {"0", "1", "2", "3", "4", "130"} <= set(re.findall(r"\b\d+\b", answer.out))


def test_the_rate_of_the_practice_web_shows_its_default(longline: Terminal) -> None:
    answer = longline("sandbox", "--help")

    assert "[default: unlimited]" in " ".join(answer.out.split())


def test_no_command_prints_help(longline: Terminal) -> None:
    answer = longline()

    assert answer.code == 2
    assert "Usage: longline" in answer.err


def test_version_is_printed(longline: Terminal) -> None:
    assert longline("--version").out.startswith("longline 0.")


def test_help_imports_no_heavy_library() -> None:
    code = (
        "import sys; sys.argv = ['longline', '--help']\n"
        "from longline.cli.main import main\n"
        "main()\n"
        "print(*sys.modules)"
    )

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    modules = set(answer.stdout.splitlines()[-1].split())
    assert "click" in modules
    assert {"pydantic", "sqlalchemy", "aiohttp", "rich", "yaml", "orjson", "asyncio"} & modules == (
        set()
    )


def test_no_command_takes_an_empty_name_of_a_job() -> None:
    every = [load_command(name) for name in COMMANDS]
    groups = [one for one in every if isinstance(one, click.Group)]
    below = [one for group in groups for one in group.commands.values()]

    given = [one for command in (*every, *below) for one in command.params if one.name == "job"]

    assert {one.type for one in given} == {JOB}


@pytest.mark.parametrize(
    "name", [name for name in COMMANDS if isinstance(load_command(name), click.Group)]
)
def test_the_purpose_of_a_subcommand_is_not_cut(longline: Terminal, name: str) -> None:
    listed = longline(name, "--help").out.partition("Commands:")[2]

    assert listed
    assert "..." not in listed


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_shows_a_range(longline: Terminal, name: str) -> None:
    assert "<=" not in longline(name, "--help").out
