"""Text from outside cannot control the terminal, and no module can print past the guard."""

from __future__ import annotations

import ast
import io
import json
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from longline.cli.output import SafeConsole, SafeLive
from longline.core.output import (
    OutputFailed,
    SafeStream,
    StandardStream,
    binary_stdout,
    protected_output,
    sanitize,
    sanitize_json,
)

PACKAGE = Path(__file__).parent.parent / "src" / "longline"
# Who may touch the streams of the process, and why.
STREAMS = {
    "core/output.py",  # the guard itself
    "cli/output.py",  # SafeConsole, which sanitises before it adds colours
    "cli/closed_pipe.py",  # replaces the descriptor when its reader is gone
    "cli/main.py",
    "distributed/celery_worker.py",  # logs of a worker, behind the guard
    "distributed/processes.py",  # hands its descriptor to a child
    "http/archive/packing.py",  # a protocol between two of our processes
    "http/middleware/html_probe.py",  # the same
}
RICH = {"cli/output.py"}  # who may make consoles and live displays
HOSTILE = "a\x1b[2J\x1b]0;t\x07\x9b31m\x08\x7f\u202e\u2066\u200e\u200b\u2028\ud800z"
BIDI = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C]


@given(st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF, categories=None)))
def test_sanitized_text_has_no_controls(text: str) -> None:
    safe = sanitize(text)

    assert all(unicodedata.category(sign) != "Cc" or sign in "\n\t" for sign in safe)
    assert all(unicodedata.category(sign) not in {"Cs", "Zl", "Zp"} for sign in safe)
    assert not any(ord(sign) in BIDI for sign in safe)
    assert len(safe) == len(text)


@pytest.mark.parametrize("text", ["Müller", "日本", "نمی‌خواهم", "👩‍👩‍👧", "a\tb\nc"])
def test_ordinary_text_is_not_changed(text: str) -> None:
    assert sanitize(text) == text


def test_a_line_stays_one_line() -> None:
    assert sanitize("a\nb\tc\rd", is_line=True).count("�") == 3


@given(st.text())
def test_sanitized_json_means_the_same(text: str) -> None:
    written = json.dumps({text: [text]}, ensure_ascii=False)

    assert json.loads(sanitize_json(written)) == {text: [text]}
    assert sanitize(sanitize_json(written)) == sanitize_json(written)


def test_a_stream_sanitises_all_that_is_written() -> None:
    target = io.StringIO()

    print(HOSTILE, file=SafeStream(target))

    assert target.getvalue() == sanitize(HOSTILE) + "\n"


def test_bytes_are_sanitised_too() -> None:
    target = io.StringIO()

    SafeStream(target).buffer.write(b"a\x1b[2J\xff")

    assert target.getvalue() == "a�[2J�"


def test_standard_streams_are_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr

    with protected_output():
        print(HOSTILE)  # noqa: T201  # what anyone may do
        sys.stderr.write(HOSTILE)

    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr() == (sanitize(HOSTILE) + "\n", sanitize(HOSTILE))


class Full(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")


def test_what_stderr_cannot_take_is_dropped() -> None:
    assert StandardStream(Full(), drops_errors=True).write("x") == 1


def test_a_full_standard_output_is_an_error_of_its_own() -> None:
    with pytest.raises(OutputFailed):
        StandardStream(Full()).write("x")


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def terminal() -> Iterator[Tty]:
    """Make both streams a terminal; in the test itself, since pytest sets them between phases."""
    tty = Tty()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", tty)
        patch.setattr(sys, "stderr", tty)
        patch.setenv("TERM", "xterm-256color")
        patch.delenv("NO_COLOR", raising=False)
        with protected_output():
            yield tty


def test_a_console_colours_and_sanitises() -> None:
    table = Table("[bold]head", "b")
    table.add_row(f"[link=http://evil.test]x[/link]{HOSTILE}", Text(f":skull:{HOSTILE}"))

    with terminal() as tty:
        SafeConsole().print(table, style="red")

    shown = tty.getvalue()
    assert "\x1b[31m" in shown
    assert "[link=http://evil.test]x[/link]" in shown
    assert ":skull:" in shown
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    assert not set(shown) & set("\x07\x9b\x08\x7f\u202e\u2066\u200e\u200b\u2028\ud800")


def test_a_console_shows_no_links() -> None:
    with terminal() as tty:
        SafeConsole().print(Text("x", style="link http://evil.test"))

    assert "x" in tty.getvalue()
    assert "evil.test" not in tty.getvalue()


def test_what_is_printed_under_a_live_display_is_sanitised() -> None:
    with (
        terminal() as tty,
        SafeLive(Text("busy"), console=SafeConsole(stderr=True), auto_refresh=False),
    ):
        print(f"\x1b]8;;http://evil.test\x1b\\link{HOSTILE}")  # noqa: T201  # what anyone may do

    assert "link" in tty.getvalue()
    assert "\x1b]" not in tty.getvalue()
    assert "\x1b[2J" not in tty.getvalue()


def test_bytes_for_a_terminal_are_sanitised() -> None:
    text = "ä\x1b[2J".encode()
    with terminal() as tty:
        target = binary_stdout()
        target.write(text[:1])
        target.write(text[1:])

    assert tty.getvalue() == "ä�[2J"


def calls(path: Path) -> set[str]:
    """Return what a module does with output, as dotted names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(f"{node.func.id}()")
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}:{alias.name}" for alias in node.names}
    return found


SOURCES = {str(path.relative_to(PACKAGE)): calls(path) for path in PACKAGE.rglob("*.py")}


def test_only_the_guard_touches_the_standard_streams() -> None:
    streams = {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}
    wrong = {name for name, found in SOURCES.items() if found & streams}

    assert wrong - STREAMS == set()


def test_only_one_module_makes_consoles() -> None:
    makers = {"Console()", "Live()", "rich.print", "rich.live:Live", "rich:print", "Status()"}
    wrong = {name for name, found in SOURCES.items() if found & makers}

    assert wrong - RICH == set()


def test_no_module_reads_markup_or_escape_sequences() -> None:
    readers = {"Text.from_markup", "Text.from_ansi", "click.style", "click.secho"}
    wrong = {name for name, found in SOURCES.items() if found & readers}

    assert wrong == set()
    assert not any(one.startswith("rich.markup:") for found in SOURCES.values() for one in found)
