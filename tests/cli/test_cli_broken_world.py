"""Streams, memory and arguments that fail: one line and an exit code, never a traceback."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import ForkServer, Result
from tests.hostile_data import attacking_site, env_of, make_world

MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


def run(server: ForkServer, folder: Path, *words: str, **how: Any) -> Result:
    env = env_of(folder, LONGLINE_HOME=str(folder / "home"))
    return server.run(*words, env=env, cwd=str(folder), **how)


def sentences(answer: Result) -> list[str]:
    assert b"Traceback" not in answer.err
    return answer.err.decode().splitlines()


@pytest.mark.parametrize("words", [("--help",), ("jobs",), ("jobs", "--json"), ("sources",)])
@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_full_output_is_an_error(
    server: ForkServer, tmp_path: Path, words: tuple[str, ...], *, is_fresh: bool
) -> None:
    answer = run(server, tmp_path, *words, output="full", is_fresh=is_fresh)

    assert answer.code == 1
    assert len(sentences(answer)) == 1


@pytest.mark.parametrize("output", ["closed", "left"])
@pytest.mark.parametrize("is_fresh", [True, False])
def test_output_that_is_gone_leaves_nothing_on_stderr(
    server: ForkServer, tmp_path: Path, output: str, *, is_fresh: bool
) -> None:
    answer = run(server, tmp_path, "jobs", output=output, is_fresh=is_fresh)

    assert answer.code in {0, 1}
    assert sentences(answer) == []


def test_a_prompt_without_input_ends(server: ForkServer, tmp_path: Path) -> None:
    with attacking_site() as url:
        answer = run(server, tmp_path, "sources", "new", f"{url}/list", output="closed")

    assert answer.code == 130
    assert len(sentences(answer)) == 1


@pytest.mark.parametrize(
    "words", [("jobs", "\udcff"), ("--home", "\udcfe"), ("robots", "http://\udc80/")]
)
def test_arguments_that_are_not_text_are_refused(
    server: ForkServer, tmp_path: Path, words: tuple[str, ...]
) -> None:
    answer = run(server, tmp_path, *words, is_fresh=True)

    assert answer.code == 2
    assert len(sentences(answer)) == 1
    assert list(tmp_path.iterdir()) == []


def test_settings_that_are_not_text_are_refused(server: ForkServer, tmp_path: Path) -> None:
    env = env_of(tmp_path, LONGLINE_HOME="\udcff")

    answer = server.run("jobs", env=env, cwd=str(tmp_path))

    assert (answer.code, len(sentences(answer))) == (2, 1)


@pytest.mark.parametrize("megabytes", [60, 140, 220])
def test_little_memory_is_no_traceback(server: ForkServer, tmp_path: Path, megabytes: int) -> None:
    memory = megabytes * MEGABYTE
    answer = run(server, tmp_path, "doctor", is_fresh=True, memory=memory)

    assert answer.code in {0, 1}
    assert len(sentences(answer)) <= 1


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "header": lambda content: b"\x00\xff" * 50 + content[100:],
    "cut": lambda content: content[: len(content) // 2],
    "flipped": lambda content: content[:100] + bytes(one ^ 0x55 for one in content[100:]),
    "schema": lambda content: content.replace(b"CREATE TABLE", b"CREATE \xe7ABLE"),
    "other": lambda _content: b"this was never a database",
}
FILES = {
    "longline.sqlite": ("jobs",),
    "pace.sqlite": ("limits",),
    "cache.sqlite": ("cache", "stats"),
    "archive/index.sqlite": ("archive", "stats"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, server: ForkServer) -> Path:
    """A home with every file of SQLite in it."""
    folder = tmp_path_factory.mktemp("whole")
    with attacking_site() as url:
        return make_world(folder, url, server).home


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_with_what_to_do(
    server: ForkServer, tmp_path: Path, whole: Path, name: str, damage: str
) -> None:
    shutil.copytree(whole, tmp_path / "home")
    for events in (tmp_path / "home").rglob("*.sqlite-*"):
        events.unlink()
    file = tmp_path / "home" / name
    content = DAMAGES[damage](file.read_bytes())
    file.write_bytes(content)

    answer = run(server, tmp_path, *FILES[name])

    (sentence,) = sentences(answer)
    assert answer.code == 1
    assert "damaged" in sentence  # not an internal error, which has the same exit code
    assert str(file) in sentence
    assert file.read_bytes() == content


@pytest.mark.parametrize("command", ["status", "doctor"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_a_finding(
    server: ForkServer, tmp_path: Path, whole: Path, damage: str, command: str
) -> None:
    shutil.copytree(whole, tmp_path / "home")
    file = tmp_path / "home" / "longline.sqlite"
    file.write_bytes(DAMAGES[damage](file.read_bytes()))

    answer = run(server, tmp_path, command)

    assert answer.code == 1
    assert sentences(answer) == []
    assert str(file).encode() in answer.out
