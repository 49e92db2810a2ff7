"""Commands that print JSON Lines: streamed, checked, timed, and ended with all they started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from pydantic import ValidationError

from longline.core.errors import BadSource, DiscoveryFailed, UnexpectedShape
from longline.core.model import Item, ItemState, JobState
from longline.orchestrator import Orchestrator
from longline.sources.base import Source, Visit
from longline.sources.command import CommandManifest, Overlong, command_source, lines_of
from tests.sources.scripted import ScriptedWeb, collect, discovered
from tests.virtual import VirtualClock

pytestmark = pytest.mark.real_time  # a process takes its time

MANIFEST = """
manifest: command
name: stock
about: What lies in the store.
command: ["{python}", -c, 'import sys; print(sys.argv[1])', '{{"sku": "{word}", "n": {{"at": 1}}}}']
parameters: {python: python, word: rope}
key: sku
fields: {article: sku, place: n.at, colour: n.colour}
"""


def source_of(*argv: str, name: str = "printing", **settings: Any) -> type[Source]:
    return command_source(CommandManifest(name=name, command=argv, **settings))


def printing(code: str, **settings: Any) -> Source:
    return source_of(sys.executable, "-c", code, **settings)()


async def found(source: Source) -> list[Item]:
    items, _ = await discovered(source, ScriptedWeb({}), VirtualClock())
    return items


async def test_each_line_is_a_record() -> None:
    source = printing('print(\'{"id": 1, "a": "ö"}\'); print(); print(\'{"id": 2}\', end=\'\')')

    items = await found(source)
    data, _ = await collect(source, ScriptedWeb({}), items[0], VirtualClock())

    assert [item.key for item in items] == ["1", "2"]
    assert data == {"id": 1, "a": "ö"}


async def test_records_come_while_the_command_runs() -> None:
    code = "import time\nprint('{\"id\": 1}', flush=True)\ntime.sleep(60)"
    stream = printing(code).discover(Visit(ScriptedWeb({}), VirtualClock()))

    first = await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # it is a generator

    assert isinstance(first, Item)
    assert first.key == "1"


@pytest.mark.parametrize("line", ["no json", "[1]", "5"])
async def test_a_line_that_is_not_a_record_fails_alone(line: str) -> None:
    source = printing(f"print({line!r}); print('{{\"id\": 2}}')")

    odd, good = await found(source)

    assert good.key == "2"
    with pytest.raises(UnexpectedShape, match=re.escape(line)):
        await collect(source, ScriptedWeb({}), odd, VirtualClock())


async def test_a_line_without_end_does_not_fill_the_memory() -> None:
    argv = [sys.executable, "-c", "print('x' * 300_000); print('short')"]

    lines = [line async for line in lines_of(argv, longest=100_000)]

    assert isinstance(lines[0], Overlong)
    assert lines[1:] == [b"short"]


async def test_much_output_arrives_whole() -> None:
    argv = [sys.executable, "-c", "for n in range(200_000): print('{\"id\": %d}' % n)"]

    lines = [line async for line in lines_of(argv)]

    assert len(lines) == 200_000
    assert lines[-1] == b'{"id": 199999}'


async def test_an_exit_code_is_a_failure_with_the_last_words_of_the_command() -> None:
    code = "import sys\nprint('{\"id\": 1}')\nsys.exit('the shop is closed')"
    stream = printing(code).discover(Visit(ScriptedWeb({}), VirtualClock()))

    first = await anext(stream)
    with pytest.raises(UnexpectedShape, match=r"\b1\b.*the shop is closed"):
        await anext(stream)

    assert isinstance(first, Item)


async def test_a_command_that_prints_nothing_is_a_failure_unless_it_may() -> None:
    with pytest.raises(DiscoveryFailed, match="may_be_empty"):
        await found(printing("pass"))

    assert await found(printing("pass", may_be_empty=True)) == []


@pytest.mark.parametrize(
    ("argv", "folder", "culprit"),
    [
        (["no-such-command"], None, "no-such-command"),
        (["./no-such-file"], None, "./no-such-file"),
        ([__file__], None, __file__),
        ([sys.executable], "no-such-folder", "no-such-folder"),
    ],
)
def test_a_command_that_cannot_be_started_is_refused_before_there_is_a_job(
    argv: list[str], folder: str | None, culprit: str
) -> None:
    kind = source_of(*argv, name="none", folder=folder)

    with pytest.raises(BadSource) as raised:
        kind()

    assert (raised.value.exit_code, raised.value.reference) == (2, "none")
    assert culprit in raised.value.problem


def test_a_program_in_the_folder_where_it_runs_can_be_started(tmp_path: Path) -> None:
    (tmp_path / "lines.sh").write_text("#!/bin/sh\n")
    (tmp_path / "lines.sh").chmod(0o700)

    source = source_of("./lines.sh", name="lines", folder=str(tmp_path))()

    assert source.name == "lines"


@pytest.mark.parametrize(
    ("said", "problem"),
    [({"timeout": 0.3}, r"\b0\.3 s"), ({"silence": 0.2}, r"\b0\.2 s")],
)
async def test_a_command_that_takes_too_long_is_ended(said: Any, problem: str) -> None:
    with pytest.raises(UnexpectedShape, match=problem):
        await found(printing("import time; time.sleep(60)", **said))


FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print('{"id": %d, "child": %d}' % (os.getpid(), child.pid), flush=True)
time.sleep(60)
"""


async def test_a_cancellation_ends_the_command_and_all_it_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("longline.sources.command._GRACE", 0.2)
    line: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()

    async def read() -> None:
        async for item in printing(FAMILY).discover(Visit(ScriptedWeb({}), VirtualClock())):
            assert isinstance(item, Item)
            line.set_result(dict(item.data["record"]))

    reading = asyncio.create_task(read())
    pids = await line
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading

    gone = [psutil.Process(pid) for pid in pids.values() if psutil.pid_exists(pid)]
    _, alive = psutil.wait_procs(gone, timeout=5)
    assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []
    assert os.getpid() not in pids.values()


READER = """
import asyncio, sys
from longline.sources.command import lines_of

async def read():
    async for line in lines_of([sys.executable, "-c", sys.argv[1]]):
        print(line.decode(), flush=True)

asyncio.run(read())
"""


async def test_a_reader_that_is_killed_takes_the_command_and_all_it_started_with_it() -> None:
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-c", READER, FAMILY, stdout=asyncio.subprocess.PIPE
    )
    assert reader.stdout is not None
    family = [psutil.Process(pid) for pid in json.loads(await reader.stdout.readline()).values()]
    reader.kill()
    await reader.wait()

    _, alive = psutil.wait_procs(family, timeout=10)

    assert len(family) == 2
    assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


async def test_a_command_has_no_children_but_its_own() -> None:
    code = "import os\ntry:\n  os.wait()\nexcept ChildProcessError:\n  print('none')"

    lines = [line async for line in lines_of([sys.executable, "-c", code])]

    assert lines == [b"none"]


async def test_a_manifest_says_it_all() -> None:
    manifest = CommandManifest.model_validate(yaml.safe_load(MANIFEST))
    kind = command_source(manifest)
    source = kind.with_options({"python": sys.executable, "word": "oil"})

    (item,) = await found(source)
    data, visit = await collect(source, ScriptedWeb({}), item, VirtualClock())

    assert (kind.name, kind.kind, kind.__doc__) == ("stock", "command", "What lies in the store.")
    assert item.key == "oil"
    assert data == {"article": "oil", "place": 1, "colour": None}
    assert [note.field for note in visit.notes] == ["colour"]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"command": "python x.py"}, "list"),
        ({"command": []}, "at least 1 item"),  # pydantic's words
        ({"command": ["x", "{site}"]}, r"\{site\}"),
        ({"command": ["x"], "key": "a["}, "jmespath"),
    ],
)
def test_a_manifest_that_cannot_work_is_refused_with_a_hint(said: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        CommandManifest(name="x", **said)


async def test_a_whole_run_quarantines_what_it_cannot_use(tmp_path: Path) -> None:
    code = "print('{\"id\": 1}'); print('Loading...'); print('{\"id\": 2}')"
    path = tmp_path / "lines.py"
    path.write_text(
        "from longline.sources.command import CommandManifest, command_source\n"
        f"argv = ({sys.executable!r}, '-c', {code!r})\n"
        "lines = command_source(CommandManifest(name='lines', command=argv))\n"
    )
    async with Orchestrator(home=tmp_path) as longline:
        report = await longline.execute(f"{path}:lines")

    assert report.state is JobState.PARTIAL
    assert report.progress.successful == 2
    assert report.progress.counts[ItemState.QUARANTINED] == 1
