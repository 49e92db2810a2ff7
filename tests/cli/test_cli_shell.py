"""longline shell: a page, and Python to look at it with."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from longline.cli.commands.shell import shell_command
from longline.config.job_spec import make_spec
from longline.config.settings import load_settings
from longline.devtools.session import NO_SOURCE, PageShell
from longline.http.errors import RobotsDisallowed
from longline.sandbox.web import PracticeWeb
from tests.cli.served import served
from tests.cli.terminal import Terminal


@pytest.fixture(scope="module")
def web() -> Iterator[PracticeWeb]:
    with served(items=5) as web:
        yield web


def asked(url: str, home: Path, code: str) -> str:
    answer = CliRunner().invoke(shell_command, [url, "-c", code, "--home", str(home)])
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_an_expression_is_run_and_printed(web: PracticeWeb, tmp_path: Path) -> None:
    url = f"{web.url}/generated/3/"

    assert asked(url, tmp_path, "page.status") == "200\n"
    assert asked(url, tmp_path, "len(css('h1'))") == "1\n"
    assert asked(url, tmp_path, "text('h1')[0]").strip()


def test_the_prompt_has_json_and_fetch(web: PracticeWeb, tmp_path: Path) -> None:
    url = f"{web.url}/generated/3/"

    assert asked(url, tmp_path, "json") == ""
    code = f"fetch('{web.api_url}/health'); print(json, page.status)"
    assert asked(url, tmp_path, code) == "{'status': 'OK'} 200\n"


def test_a_missing_page_can_be_inspected(web: PracticeWeb, tmp_path: Path) -> None:
    assert asked(f"{web.url}/nowhere", tmp_path, "page.status") == "404\n"


def test_the_prompt_has_the_page(
    web: PracticeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    answer = CliRunner().invoke(
        shell_command,
        [f"{web.url}/generated/3/", "--home", str(tmp_path)],
        input="print(len(css('h1')))\n",
    )

    assert answer.exit_code == 0
    assert "text(selector)" in answer.output
    assert "1\n" in answer.stdout


def test_a_page_is_shown_as_it_was_received(web: PracticeWeb, tmp_path: Path) -> None:
    shown: list[str] = []
    spec = make_spec({"source": NO_SOURCE})

    with PageShell(load_settings(home=tmp_path), spec, show=shown.append) as shell:
        shell.fetch(f"{web.url}/generated/3/")
        address = shell.view()

    file = Path(address.removeprefix("file://"))
    assert shown == [address]
    assert f'<base href="{web.url}/generated/3/">' in file.read_text("utf-8")
    file.unlink()


def test_robots_txt_is_obeyed_by_the_shell(tmp_path: Path) -> None:
    with served(items=1, disallow=True) as web:
        answer = CliRunner().invoke(
            shell_command, [f"{web.api_url}/health", "-c", "page", "--home", str(tmp_path)]
        )

    assert answer.exit_code == 1
    assert isinstance(answer.exception, RobotsDisallowed)


def test_an_address_may_be_relative_to_the_last_page(web: PracticeWeb, tmp_path: Path) -> None:
    url = f"{web.url}/generated/3/"

    assert asked(url, tmp_path, "fetch('/generated/4/').url") == f"{web.url}/generated/4/\n"
    assert asked(url, tmp_path, "fetch('?start=9').url") == f"{web.url}/generated/3/?start=9\n"


@pytest.mark.parametrize("url", ["shop.test/x", "/x", "", "http://[::1", "mailto:me@shop.test"])
def test_an_invalid_url_is_a_usage_error(longline: Terminal, url: str) -> None:
    answer = longline("shell", url, "-c", "page")

    assert answer.code == 2
    assert len(answer.err.splitlines()) == 1


def test_code_that_raises_is_one_line_and_exit_1(web: PracticeWeb, longline: Terminal) -> None:
    answer = longline("shell", f"{web.url}/generated/3/", "-c", "1/0")

    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert "ZeroDivisionError: division by zero" in answer.err


def test_help_lists_what_there_is_at_the_prompt(web: PracticeWeb, tmp_path: Path) -> None:
    url = f"{web.url}/generated/3/"

    assert asked(url, tmp_path, "help") == asked(url, tmp_path, "help()")
    assert "fetch(url)" in asked(url, tmp_path, "help")


class Prompt:
    """`longline shell` on a terminal of its own."""

    def __init__(self, url: str, home: Path) -> None:
        self._terminal, end = pty.openpty()
        code = "from longline.cli.main import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, "shell", url, "--home", str(home)],
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
        )
        os.close(end)
        self.shown()

    def shown(self) -> str:
        """Return what the terminal shows until the next prompt."""
        seen = b""
        while not seen.endswith(b">>> "):
            seen += os.read(self._terminal, 4096)
        return seen.decode()

    def answer(self, keys: str) -> str:
        os.write(self._terminal, keys.encode())
        return self.shown()

    def leave(self) -> int:
        os.write(self._terminal, b"\x04")
        code = self._process.wait()
        os.close(self._terminal)
        return code


@pytest.mark.real_time
def test_an_error_of_ours_at_the_prompt_has_no_traceback(web: PracticeWeb, tmp_path: Path) -> None:
    prompt = Prompt(f"{web.url}/generated/3/", tmp_path)

    shown = prompt.answer("fetch('mailto:me@shop.test')\n")
    page = prompt.answer("fetch('/generated/4/')\n")

    assert "Traceback" not in shown
    assert "body=" not in page
    assert prompt.leave() == 0
