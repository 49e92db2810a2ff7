"""longline shell: a page, and Python to look at it with."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.served import served
from longline.authoring.bench import SINGLE
from longline.authoring.shell import PageShell
from longline.cli.shell import command
from longline.config.settings import load_settings
from longline.config.spec import make_spec
from longline.sandbox.web import PracticeWeb


@pytest.fixture(scope="module")
def web() -> Iterator[PracticeWeb]:
    with served(items=5) as web:
        yield web


def asked(url: str, home: Path, code: str) -> str:
    answer = CliRunner().invoke(command, [url, "-c", code, "--home", str(home)])
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_an_expression_is_run_and_printed(web: PracticeWeb, tmp_path: Path) -> None:
    url = f"{web.url}/generated/3/"

    assert asked(url, tmp_path, "page.status") == "200\n"
    assert asked(url, tmp_path, "len(css('h1'))") == "1\n"
    assert asked(url, tmp_path, "text('h1')[0]").strip()


def test_json_and_other_pages_are_at_hand(web: PracticeWeb, tmp_path: Path) -> None:
    url = f"{web.url}/generated/3/"

    assert asked(url, tmp_path, "json") == ""
    code = f"fetch('{web.api_url}/health'); print(json, page.status)"
    assert asked(url, tmp_path, code) == "{'status': 'OK'} 200\n"


def test_a_page_that_is_missing_can_be_looked_at(web: PracticeWeb, tmp_path: Path) -> None:
    assert asked(f"{web.url}/nowhere", tmp_path, "page.status") == "404\n"


def test_a_prompt_knows_the_page(
    web: PracticeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    answer = CliRunner().invoke(
        command,
        [f"{web.url}/generated/3/", "--home", str(tmp_path)],
        input="print(len(css('h1')))\n",
    )

    assert answer.exit_code == 0
    assert "text(selector)" in answer.output
    assert "1\n" in answer.stdout


def test_a_page_is_shown_as_it_was_received(web: PracticeWeb, tmp_path: Path) -> None:
    shown: list[str] = []
    spec = make_spec({"source": SINGLE})

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
            command, [f"{web.api_url}/health", "-c", "page", "--home", str(tmp_path)]
        )

    assert answer.exit_code == 1
    assert "robots.txt" in str(answer.exception)
