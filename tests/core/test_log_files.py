"""Log files are rotated by size, by one process or several."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.core import logging as ours
from longline.core.logging import (
    LogOptions,
    configure_logging,
    keep_rotating_logs,
    reset_logging,
    rotate_log,
)

LOG = logging.getLogger("longline.test")
WRITE = """
import logging, os, sys
from longline.core import logging as ours
ours.LOG_BYTES = 20_000
ours._PARTS = 99
ours.configure_logging(ours.LogOptions(file=sys.argv[1]))
name = sys.argv[2]
child = os.fork()  # children of a worker share the open file
for number in range(400):
    logging.getLogger("longline.test").info("%s/%s/%d end", name, bool(child), number)
if child:
    os.wait()
"""


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    yield
    reset_logging()


def parts_of(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.glob(f"{path.name}*"))


def test_a_log_file_is_rotated_when_it_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "LOG_BYTES", 1000)
    file = tmp_path / "run.log"
    configure_logging(LogOptions(file=str(file)))

    for number in range(300):
        LOG.info("line %d", number)

    assert parts_of(file) == ["run.log", *(f"run.log.{number}" for number in range(1, 6))]
    assert all(one.stat().st_size < 1100 for one in tmp_path.iterdir())
    assert all(one.stat().st_mode & 0o777 == 0o600 for one in tmp_path.iterdir())
    last = (tmp_path / "run.log").read_text() or (tmp_path / "run.log.1").read_text()
    assert last.endswith("line 299\n")


def test_several_processes_share_a_log_file_without_losing_lines(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    command = [sys.executable, "-c", WRITE, str(file)]
    running = [subprocess.Popen([*command, str(number)]) for number in range(3)]

    assert [one.wait(60) for one in running] == [0, 0, 0]

    text = "".join(one.read_text() for one in tmp_path.iterdir())
    lines = [line.split()[-2] for line in text.splitlines()]
    assert len(lines) == len(set(lines)) == 2400
    assert all(line.endswith(" end") for line in text.splitlines())
    assert len(parts_of(file)) > 3


def test_what_a_process_prints_is_rotated_while_it_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "worker.log"
    with file.open("ab", buffering=0) as printing:
        printing.write(b"a" * 1001)
        rotate_log(file, max_bytes=1000, parts=2)
        printing.write(b"b")

    assert (tmp_path / "worker.log.1").read_bytes() == b"a" * 1001
    assert file.read_bytes() == b"b"


def test_a_small_log_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "worker.log"
    file.write_bytes(b"a" * 1000)

    rotate_log(file, max_bytes=1000)
    rotate_log(tmp_path / "none.log", max_bytes=1000)

    assert parts_of(file) == ["worker.log"]


def test_a_log_may_be_a_device() -> None:
    configure_logging(LogOptions(file="/dev/null"))

    LOG.info("nowhere")


async def test_the_logs_of_a_folder_are_kept_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotate_log, "__kwdefaults__", {"max_bytes": 1000, "parts": 2})
    file = tmp_path / "worker-1.log"
    rotating = asyncio.create_task(keep_rotating_logs(tmp_path))

    for _ in range(3):
        file.write_bytes(b"a" * 1001)
        await asyncio.sleep(60)
    rotating.cancel()

    assert parts_of(file) == ["worker-1.log", "worker-1.log.1", "worker-1.log.2"]
    assert file.stat().st_size == 0
