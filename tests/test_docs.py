"""What the documents show and point to is really there."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from longline.cli.main import cli
from longline.config.settings import Settings
from longline.core.model import JobState
from longline.orchestrator import Orchestrator
from longline.sandbox.web import PracticeWeb, WebOptions
from tests.command_tree import commands
from tests.virtual import VirtualClock

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "my_source.py"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_COMMANDS = [*PAGES, ROOT / "examples" / "README.md", ROOT / "CONTRIBUTING.md"]
OF_THE_PAST = ROOT / "docs" / "decisions"
WITH_PATHS = [page for page in WITH_COMMANDS if page.parent != OF_THE_PAST]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MODULES = [
    str(path)
    for name in ("src", "tests", "bench", "docs", "tools")
    for path in (ROOT / name).rglob("*.py")
]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TEST = re.compile(r"`(tests/[\w/]+\.py|…)::(\w+)`")
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"`((?:[\w-]+/)+[\w-]+\.py)`")
_DEFINED = re.compile(r"`([A-Za-z_][\w.]*)`\s+\(`([\w/]+\.py)`")
_MESSAGE = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*longline (.*)$", re.MULTILINE)
_MENTION = re.compile(r"`longline\s([^`]+)`")


def text_of(page: Path) -> str:
    """Return a page without its blocks of code."""
    return _CODE.sub("", page.read_text("utf-8"))


def links_of(page: Path) -> list[tuple[Path, str]]:
    """Return where a page points to in this repository: files, and places in them."""
    found = (link.partition("#") for link in _LINK.findall(text_of(page)) if "://" not in link)
    return [(page.parent / path if path else page, place) for path, _, place in found]


def places_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one).lower().replace(" ", "-") for one in headings}


def named_in(page: Path) -> list[tuple[str, str]]:
    """Return the tests that a page names, by file and function; … is the file before."""
    found: list[tuple[str, str]] = []
    for path, name in _TEST.findall(page.read_text("utf-8")):
        found.append((found[-1][0] if path == "…" else path, name))
    return found


def test_the_source_in_the_readme_is_the_example() -> None:
    blocks = _PYTHON.findall((ROOT / "README.md").read_text("utf-8"))

    assert EXAMPLE.read_text("utf-8") in blocks


async def test_the_example_collects_from_a_practice_web(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with (
        PracticeWeb(WebOptions(items=5), clock=clock) as web,
        Orchestrator(str(EXAMPLE), {"site": web.url}, home=tmp_path, clock=clock) as longline,
    ):
        report = await longline.execute()
        record = await longline.store.records.get(str(web.catalogue.obtainable[0]))

    assert (report.state, report.progress.successful) == (JobState.COMPLETE, 5)
    assert record["data"]["title"]
    assert record["data"]["author"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_points_to_is_there(page: Path) -> None:
    broken = [
        (str(path), place)
        for path, place in links_of(page)
        if not path.exists() or (place and place not in places_of(path))
    ]

    assert broken == []


@pytest.mark.parametrize("page", WITH_PATHS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    paths = _PATH.findall(text_of(page))

    assert [one for one in paths if not any(module.endswith(f"/{one}") for module in MODULES)] == []


def defines(tree: ast.Module | ast.ClassDef, name: str) -> bool:
    """Return whether a module or class defines a name, such as `Queue` or `Queue.lease`."""
    first, _, rest = name.partition(".")
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == first:
            return not rest or defines(node, rest)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == first:
            return not rest
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == first for one in targets):
            return not rest
    return False


def test_what_the_architecture_places_in_a_module_is_defined_there() -> None:
    page = ROOT / "docs" / "architecture.md"
    pairs = [
        (name, ROOT / "src" / "longline" / path) for name, path in _DEFINED.findall(text_of(page))
    ]

    wrong = [
        f"{name} ({path})"
        for name, path in pairs
        if not path.is_file() or not defines(ast.parse(path.read_text("utf-8")), name)
    ]

    assert len(pairs) > 30
    assert wrong == []


def texts_of(module: Path) -> Iterator[str]:
    """Yield the texts of a module, with … in place of values."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"{[^{}]*}", "…", node.value)
        if isinstance(node, ast.JoinedStr):
            values = [getattr(part, "value", "") for part in node.values]
            yield "".join(one if isinstance(one, str) else "…" for one in values)


def test_every_message_in_the_troubleshooting_is_one_of_ours() -> None:
    page = ROOT / "docs" / "troubleshooting.md"
    texts = {text for path in SOURCES for text in texts_of(path)}
    messages = _MESSAGE.findall(page.read_text("utf-8"))
    parts = [part.strip(" ;:") for one in messages for part in re.split(r"…|\d+(?:\.\d+)?", one)]

    assert len(messages) > 30
    assert [one for one in parts if len(one) > 8 and not any(one in text for text in texts)] == []


def test_every_test_that_proves_a_requirement_exists() -> None:
    named = named_in(ROOT / "docs" / "requirements.md")

    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file() or f"def {name}(" not in (ROOT / path).read_text("utf-8")
    ]

    assert len(named) > 50
    assert missing == []


def lines_of(page: Path) -> list[list[str]]:
    """Return the commands that a page shows in blocks of code, to be typed as they are."""
    blocks = _BLOCK.findall(page.read_text("utf-8"))
    return [shlex.split(line, comments=True) for one in blocks for line in _LINE.findall(one)]


def mentions_of(page: Path) -> list[list[str]]:
    """Return the commands in a page's sentences, which may lack some of their arguments."""
    found = _MENTION.findall(_BLOCK.sub("", page.read_text("utf-8")))
    words = (shlex.split(re.sub(r"[\[\]…]", " ", one)) for one in found)
    return [one for one in words if one not in (["--help"], ["--version"])]


def params_of(words: list[str], *, is_complete: bool) -> Iterator[tuple[click.Parameter, object]]:
    """Yield the parameters of a command line that were given, each with its text.

    Raises:
        click.UsageError: there is no such command or option, or an argument is missing or too much.
    """
    command: click.Command = cli
    context = click.Context(cli, info_name="longline")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        inside = command.make_context(context.info_name, list(words), context.parent)
        rest = [*inside._protected_args, *inside.args]  # a group has no other way
        _, found, words = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, click.Context(found, parent=context)
    values, extra, _ = command.make_parser(context).parse_args(list(words))
    if extra:
        raise click.UsageError(f"unexpected argument {extra[0]}", context)
    for param in command.get_params(context):
        value = values.get(param.name)
        is_missing = param.name not in values or param.value_is_missing(value)
        if is_complete and param.required and is_missing:
            raise click.MissingParameter(ctx=context, param=param)
        if not is_missing:
            yield param, value


def problem_of(words: list[str], *, is_complete: bool) -> str | None:
    """Return why a command line cannot be run; None when it can."""
    try:
        for param, value in params_of(words, is_complete=is_complete):
            is_option = isinstance(param, click.Option) and not param.is_flag
            is_placeholder = isinstance(value, str) and value.isupper()
            if is_option and not is_placeholder and not isinstance(param.type, click.Path):
                param.type_cast_value(click.Context(cli), value)
    except click.UsageError as error:
        return error.format_message()
    return None


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_of_a_page_can_be_run(page: Path) -> None:
    lines = [(one, problem_of(one, is_complete=True)) for one in lines_of(page)]
    mentions = [(one, problem_of(one, is_complete=False)) for one in mentions_of(page)]

    assert [(one, problem) for one, problem in lines + mentions if problem] == []


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_option_of_a_command_is_in_the_pages(path: tuple[str, ...]) -> None:
    text = "\n".join(page.read_text("utf-8") for page in WITH_COMMANDS)
    options = [one for one in commands()[path].params if isinstance(one, click.Option)]
    names = [[*one.opts, *one.secondary_opts] for one in options]

    assert [
        some for some in names if not any(re.search(rf"[` ]{one}\b", text) for one in some)
    ] == []


def test_every_setting_and_extra_is_in_the_configuration() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"audit", "bench", "dev"}
    names = [f"LONGLINE_{name.upper()}" for name in Settings.model_fields]

    assert [one for one in [*names, *sorted(extras)] if f"`{one}`" not in text] == []


def test_command_lines_are_found_in_the_pages() -> None:
    assert sum(len(lines_of(page)) for page in WITH_COMMANDS) > 50
    assert sum(len(mentions_of(page)) for page in WITH_COMMANDS) > 150


@pytest.mark.parametrize(
    "line",
    ["fly", "records --source a", "run --nosuch", "up --workers two", "records show", "down now"],
)
def test_a_command_line_that_cannot_be_run_is_noticed(line: str) -> None:
    assert problem_of(line.split(), is_complete=True)
