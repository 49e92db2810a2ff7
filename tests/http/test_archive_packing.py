"""The process that packs pages: what it does is the same, and nothing depends on its life."""

from __future__ import annotations

import asyncio
import marshal
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from longline.http.archive.drafts import Draft, Load, load_of, pack_page
from longline.http.archive.packing import PROCESS, Packer
from longline.http.archive.packing_process import SIZE
from longline.http.archive.warc import WarcArchive, open_warc
from tests.http.archived import answer, page, records_in


def loads(count: int) -> list[Load]:
    bodies = [b"page %d" % number * 50 for number in range(count)]
    return [load_of(answer(body, at=1), page(body)) for body in bodies]


def children() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and PROCESS in child.cmdline()
    ]


@pytest.fixture
def packer() -> Iterator[Packer]:
    packer = Packer()
    yield packer
    packer.close()


def packed_there(packer: Packer) -> list[Draft]:
    """Pack pages once to have the process started, and again when it is ready."""
    packer.pack(loads(20))
    process = packer._process
    assert process is not None
    select.select([process._answers], [], [])  # nobody else can tell when it is ready
    return packer.pack(loads(20))


async def busy(archive: WarcArchive, name: bytes, rounds: int = 1) -> None:
    for number in range(rounds):
        bodies = [b"%b %d %d" % (name, number, one) for one in range(20)]
        await asyncio.gather(*(archive.keep(answer(body)) for body in bodies))


def test_many_are_packed_by_a_process_and_as_they_would_be_here(packer: Packer) -> None:
    there = packed_there(packer)

    assert len(children()) == 1
    packer.close()
    assert children() == []
    here = [pack_page(load) for load in loads(20)]
    assert [(one.about, one.head, one.has_body) for one in there] == [
        (one.about, one.head, one.has_body) for one in here
    ]


def test_few_need_no_process(packer: Packer) -> None:
    drafts = packer.pack(loads(2))

    assert len(drafts) == 2
    assert children() == []


def test_a_killed_process_is_not_missed(packer: Packer) -> None:
    packed_there(packer)
    children()[0].kill()

    assert [len(packer.pack(loads(20))) for _ in range(3)] == [20, 20, 20]


async def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    async with open_warc(tmp_path) as archive:
        await busy(archive, b"first")
        while not children():
            await busy(archive, b"more")
        children()[0].kill()
        await busy(archive, b"second", rounds=5)

    bodies = {record.body for record in records_in(tmp_path) if record.rec_type == "response"}
    assert {b"first 0 %d" % one for one in range(20)} <= bodies
    assert {b"second %d %d" % (n, one) for n in range(5) for one in range(20)} <= bodies


def test_where_no_process_can_be_started_the_pages_are_packed_here(
    packer: Packer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))

    assert [len(packer.pack(loads(20))) for _ in range(3)] == [20, 20, 20]


def test_it_does_not_mind_signals_and_ends_when_nobody_can_ask_any_more() -> None:
    command = [sys.executable, "-m", PROCESS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for _ in range(2):
            assert ask(process, loads(3)) == 3
            os.kill(process.pid, signal.SIGINT)
            os.kill(process.pid, signal.SIGTERM)

    assert process.returncode == 0


def ask(process: subprocess.Popen[bytes], asked: list[Load]) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    question = marshal.dumps([tuple(one) for one in asked])
    process.stdin.write(SIZE.pack(len(question)) + question)
    process.stdin.flush()
    (size,) = SIZE.unpack(process.stdout.read(SIZE.size))
    return len(marshal.loads(process.stdout.read(size)))  # noqa: S302  # our own
