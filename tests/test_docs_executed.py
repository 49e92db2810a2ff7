"""Every command and code block of the documentation runs against a practice web.

A page is one session in an empty folder with a copy of `examples/`. Blocks run in their order.
A block whose first line is a comment with a file name is stored under that name.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import shlex
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from longline.analysis.match_rules import read_rules
from longline.enrichment.task_files import read_task
from longline.sandbox.web import PracticeWeb
from longline.scheduling.flow import load_flow
from tests.cli.served import served
from tests.cli.terminal import Answer, Terminal

ROOT = Path(__file__).parent.parent
GENERATED = {"soak.md", "judged.md", "performance.md", "http-cache.md"}
WITHOUT_COMMANDS = {"architecture.md", "requirements.md"}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *(
        page
        for page in sorted((ROOT / "docs").glob("*.md"))
        if page.name not in GENERATED | WITHOUT_COMMANDS
    ),
]
ADDRESS = "127.0.0.1:8765"
NOT_EXECUTED = {
    r"^(make|pip) ": "installs packages",
    r"^longline sandbox": "serves until it is interrupted; the fixture `web` stands in for it",
    r"^longline (up|down|worker)\b|--engine celery|--detach": "needs servers: tests/services",
    r"^export LONGLINE_": "names servers that do not exist",
    r"^longline db copy |postgresql://|s3://": "needs a server: tests/export, tests/integration",
    r"--server http|Client\(": "needs a server: tests/server/web",
    r"^longline serve($| +#)": "serves until it is interrupted: tests/server",
    r"^longline mcp": "serves until its client ends: tests/server/agents",
    r"^longline proxies (add|check)": "needs proxies: tests/cli/test_cli_proxies.py",
    r"^longline alerts test": "sends a mail: tests/monitoring/alerts",
    r"enrich_listings": "needs a language model: tests/enrichment",
    r"^curl .*127.0.0.1:8400/": "needs a server: tests/server/web/api/test_api_page.py",
    r'engine="celery"|cluster_running': "needs servers: tests/services",
}
SMALLER = {"longline demo": "longline demo --items 10"}
EXIT_CODES = {
    "longline run lots.yaml": 3,  # the site changes during the run
    "longline run strict.yaml": 3,  # some quotes are too long
    "longline quarantine replay": 3,  # they still are
    "longline pause JOB": 2,  # the job has ended
    "longline cancel JOB": 2,
    "longline webhooks test": 1,  # the practice web receives no webhooks
    "longline webhooks redeliver": 1,
}
SECRETS = {
    "SHOP_TOKEN": "token",
    "DB_PASSWORD": "password",
    "HOOK_SECRET": f"whsec_{'a' * 32}",
    "SMTP_PASSWORD": "password",
    "APPRISE_URL": "json://127.0.0.1:1",
}
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:yaml|py))\n")
_BASE_MANIFEST = {
    "manifest": "html",
    "name": "x",
    "start": "http://x.example/",
    "fields": {"a": "b"},
}


@dataclass(frozen=True)
class Block:
    """One code block of a page, by the line at which it begins."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def file(self) -> str:
        """The name under which the block is stored."""
        found = _FILE.match(self.text)
        return found.group(1) if found else f"block{self.line}.{self.language}"

    @property
    def commands(self) -> dict[str, list[str]]:
        """The commands of a shell block with the output that is shown, if there are prompts."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        if not self.text.startswith("$ "):
            return {line: [] for line in lines}
        found: dict[str, list[str]] = {}
        for line in lines:
            if line.startswith("$ "):
                found[line.removeprefix("$ ")] = []
            else:
                found[list(found)[-1]].append(line)
        return found


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found.group(2), found.group(3))
        for found in _BLOCK.finditer(text)
    ]


def reason_not_to_execute(text: str) -> str | None:
    return next((why for pattern, why in NOT_EXECUTED.items() if re.search(pattern, text)), None)


def first_word(line: str) -> str:
    """Return the first word of a line of output; all numbers are the same."""
    word = line.split(maxsplit=1)[0] if line.strip() else ""
    return "#" if re.search(r"\d", word) else word


class Session:
    """Runs the blocks of one page."""

    def __init__(self, web: PracticeWeb, terminal: Terminal, folder: Path) -> None:
        self._host = web.url.removeprefix("http://")
        self._terminal = terminal
        self._folder = folder

    def run(self, block: Block) -> None:
        text = block.text.replace(ADDRESS, self._host)
        {"": self._shell, "yaml": self._yaml, "python": self._python, "json": self._json}[
            block.language
        ](block, text)

    def _shell(self, block: Block, text: str) -> None:
        for command, output in Block(block.page, block.line, "", text).commands.items():
            if reason_not_to_execute(command) is None:
                self._command(command, output)

    def _command(self, command: str, output: list[str]) -> None:
        program, *words = shlex.split(SMALLER.get(command, command), comments=True)
        if program == "curl":
            request = urllib.request.Request(words[-1], method="POST")  # noqa: S310  # the practice web
            urllib.request.urlopen(request).close()  # noqa: S310
            return
        assert program == "longline", command
        self._pin_rate()
        answer = self._terminal(*self._filled(words))
        expected = next(
            (code for start, code in EXIT_CODES.items() if command.startswith(start)), 0
        )
        assert answer.code == expected, (command, answer.out[-2000:], answer.err[-2000:])
        words_shown = {first_word(line) for line in f"{answer.out}\n{answer.err}".splitlines()}
        assert [line for line in output if first_word(line) not in words_shown] == []

    def _pin_rate(self) -> None:
        self._terminal("limits", "pin", self._host, "--rate", "1000", "--burst", "100")

    def _filled(self, words: list[str]) -> list[str]:
        """Return words with JOB, KEY and OTHER replaced by what the home has."""
        return [re.sub(r"\b(JOB|KEY|OTHER)\b", lambda name: self._find(name[0]), w) for w in words]

    def _find(self, name: str) -> str:
        if name == "JOB":
            return str(self._json_of("jobs", "--limit", "1")["job"])
        quarantined = self._terminal("quarantine", "list", "--json")
        if groups := json.loads(quarantined.out or "[]"):
            return str(groups[0]["keys"][0])
        pairs = self._terminal("duplicates", "list", "--json").out.splitlines()
        if pairs:
            keys: list[str] = sorted(json.loads(pairs[0])["records"])
            return keys[0 if name == "KEY" else -1].partition("/")[2]
        return str(self._json_of("records", "list", "--order", "-@version", "--limit", "1")["key"])

    def _json_of(self, *words: str) -> Any:
        found = json.loads(self._terminal(*words, "--json").out)
        return found[0] if isinstance(found, list) else found

    def _yaml(self, block: Block, text: str) -> None:
        path = self._folder / block.file
        path.write_text(text, "utf-8")
        values = yaml.safe_load(text)
        if "match" in values:
            read_rules(path)
        elif "enrich" in values:
            read_task(path)
        elif "flow" in values:
            load_flow(str(path))
        elif path.name == "longline.yaml":
            assert self._terminal("config", "show").code == 0
        elif {"manifest", "source"} & set(values):
            answer = self._terminal("config", "validate", path.name)
            assert answer.code == 0, (text, answer.out, answer.err)
        else:
            self._fragment(path, values)

    def _fragment(self, path: Path, values: dict[str, Any]) -> None:
        """Validate a part of a job file or a manifest."""
        answers: list[Answer] = []
        for base in ({"source": "my_source.py"}, _BASE_MANIFEST):
            path.write_text(yaml.safe_dump({**base, **values}), "utf-8")
            answers.append(self._terminal("config", "validate", path.name))
        assert 0 in [one.code for one in answers], [(one.out, one.err) for one in answers]

    def _python(self, block: Block, text: str) -> None:
        if _FILE.match(text):
            (self._folder / block.file).write_text(text, "utf-8")
        tree = ast.parse(text)
        if reason_not_to_execute(text):
            tree.body = [
                node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))
            ]
        else:
            self._pin_rate()
        code = compile(
            tree, f"{block.page.name}:{block.line}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        names = {"__name__": "documented"}
        result = eval(code, names)  # noqa: S307  # the code of our own pages
        if inspect.iscoroutine(result):
            asyncio.run(result)

    def _json(self, _block: Block, text: str) -> None:
        json.loads(text)


@pytest.fixture(scope="module")
def web() -> Iterator[PracticeWeb]:
    with served(items=20) as web:
        web.sites.listings.board.begin(properties=12, ads=30)
        yield web


@pytest.fixture
def session(
    web: PracticeWeb,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Session:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copy(ROOT / "docs" / "examples" / "my_source.py", tmp_path)
    (tmp_path / "sources").mkdir()
    shutil.copy(ROOT / "examples" / "quotes.yaml", tmp_path / "sources")
    host = web.url.removeprefix("http://")
    for path in (*tmp_path.glob("*.py"), *tmp_path.glob("*/*.*")):
        path.write_text(path.read_text("utf-8").replace(ADDRESS, host), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("LONGLINE_HOME", "LONGLINE_DATABASE_URL", "LONGLINE_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PRACTICE_HOST", host)
    # The memory of this process is that of all tests before, which a report would judge.
    monkeypatch.setattr("longline.running._RSS_UNIT", 1)
    return Session(web, Terminal(monkeypatch, capsys), tmp_path)


@pytest.mark.real_time
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_runs(page: Path, session: Session) -> None:
    for block in blocks_of(page):
        session.run(block)


def test_most_commands_are_executed() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page) if not block.language]
    commands = [command for block in blocks for command in block.commands]
    skipped = [command for command in commands if reason_not_to_execute(command)]

    assert len(commands) > 60
    assert len(skipped) < len(commands) / 3


@pytest.mark.parametrize("pattern", NOT_EXECUTED)
def test_every_exception_is_needed(pattern: str) -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]
    texts = [line for block in blocks for line in [block.text, *block.commands]]

    assert any(re.search(pattern, text) for text in texts)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("", "longline records show nosuch\n"),
        ("", "$ longline jobs\nan output that is not printed\n"),
        ("yaml", "manifest: html\n"),
        ("yaml", "budget: many\n"),
        ("python", "assert False\n"),
    ],
)
def test_a_block_that_fails_is_noticed(language: str, text: str, session: Session) -> None:
    with pytest.raises(AssertionError):
        session.run(Block(ROOT / "README.md", 1, language, text))
