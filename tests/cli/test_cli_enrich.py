"""longline enrich: asking about records, how far a task is, and the answers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import click
import pytest

from longline.core.errors import BadFile, BadOption, LonglineError, MissingExtra, UnknownRecord
from longline.sandbox.language_model import LanguageModel, ModelFault, ModelOptions
from tests.cli.terminal import Terminal

TASK = """\
enrich: moods
sources: [shop]
server: {{url: "{url}"{more}}}
model: practice
version: v3
prompt: "What mood? {{title}}"
schema:
  type: object
  properties: {{mood: {{enum: [plain, "[/b]eager"]}}}}
  required: [mood]
  additionalProperties: false
rate: unlimited
"""
LOCAL = """\
enrich: worth
sources: [shop]
enricher:
  currency: {field: price, assume: BGN, to: EUR, rates: {BGN: 0.5}, date: 2026-01-02}
"""


@pytest.fixture
def model() -> Iterator[LanguageModel]:
    """A model in a thread: commands bring an event loop of their own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    model = LanguageModel(ModelOptions(slow=1.0))
    asyncio.run_coroutine_threadsafe(model.__aenter__(), loop).result()
    yield model
    asyncio.run_coroutine_threadsafe(model.__aexit__(None, None, None), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def task(tmp_path: Path, model: LanguageModel) -> Path:
    path = tmp_path / "task.yaml"
    path.write_text(TASK.format(url=model.url, more=""))
    return path


@pytest.fixture
def collected(longline: Terminal, shop: Path) -> Terminal:
    """The command line in a home with three records."""
    assert longline("run", shop, "--json").code == 0
    return longline


def test_a_task_is_run_and_shows_how_it_ended(collected: Terminal, task: Path) -> None:
    answer = collected("enrich", "run", task)

    assert answer.code == 0
    assert all(text in answer.out for text in ("complete", "moods", "3 answered"))
    queued = answer.err.splitlines()[0]  # of records, of those with something to ask, of questions
    assert "moods" in queued
    assert re.findall(r"\d+", queued)[:3] == ["3", "3", "3"]


def test_json_is_one_object_on_the_last_line(collected: Terminal, task: Path) -> None:
    answer = collected("enrich", "run", task, "--json")

    last = answer.last
    assert (answer.code, answer.err) == (0, "")
    assert (last["task"], last["state"], last["requests"]) == ("moods", "complete", 3)
    assert last["records"] == {"queued": 0, "leased": 0, "answered": 3, "failed": 0, "skipped": 0}


def test_a_limit_leaves_the_rest_for_the_next_run(
    collected: Terminal, task: Path, model: LanguageModel
) -> None:
    first = collected("enrich", "run", task, "--limit", "1", "--json")
    second = collected("enrich", "run", task, "--json")

    assert (first.code, first.last["state"], first.last["records"]["queued"]) == (0, "limited", 2)
    assert (second.last["state"], second.last["requests"]) == ("complete", 2)
    assert model.tally.asked.total() == 3


def test_failed_questions_have_a_reason_and_can_be_retried(
    collected: Terminal, task: Path, model: LanguageModel
) -> None:
    model.spoils["What mood? Thing [/b] 1"] = ModelFault.NONSENSE

    ended = collected("enrich", "run", task)
    status = collected("enrich", "status", "moods")
    (row,) = collected("enrich", "status", "moods", "--json").last
    model.spoils.clear()
    retried = collected("enrich", "retry", task)
    again = collected("enrich", "run", task, "--json")

    (reason,) = row["reasons"]
    assert ended.code == 3
    assert "longline enrich status moods" in ended.out
    assert (reason["records"], reason["state"]) == (1, "failed")
    assert all(text in reason["reason"] for text in ("3", "JSON"))
    assert "1 failed" in status.out
    assert all(text in retried.out for text in ("1", "moods"))
    assert (again.code, again.last["state"], again.last["requests"]) == (0, "complete", 1)


def test_a_retry_answers_in_json(collected: Terminal, task: Path, model: LanguageModel) -> None:
    model.spoils["What mood? Thing [/b] 1"] = ModelFault.NONSENSE
    collected("enrich", "run", task, "--json")

    assert collected("enrich", "retry", task, "--json").last == {"task": "moods", "queued": 1}


def test_an_unreachable_server_pauses_the_run(collected: Terminal, task: Path) -> None:
    task.write_text(TASK.format(url="http://127.0.0.1:9", more=", patience: 0"))

    answer = collected("enrich", "run", task)

    assert answer.code == 4
    assert "paused" in answer.out
    assert "http://127.0.0.1:9" in answer.out


class Ringing(deque[ModelFault | None]):
    """A script that presses ctrl-c as its first line is read."""

    is_rung = False

    def popleft(self) -> ModelFault | None:
        if not self.is_rung:
            self.is_rung = True
            os.kill(os.getpid(), signal.SIGINT)
        return super().popleft()


def test_ctrl_c_stops_the_task_safely(
    collected: Terminal, task: Path, model: LanguageModel
) -> None:
    model.script = Ringing([ModelFault.SLOW] * 3)

    answer = collected("enrich", "run", task, "--json")

    assert (answer.code, answer.last["state"]) == (130, "interrupted")
    assert answer.last["records"]["leased"] == 0
    assert answer.last["records"]["answered"] == model.tally.answered.total() > 0


def test_status_lists_the_tasks_of_a_home(collected: Terminal, task: Path) -> None:
    before = collected("enrich", "status")
    none = collected("enrich", "status", "--json").last
    collected("enrich", "run", task, "--json")

    shown = collected("enrich", "status")
    rows = collected("enrich", "status", "--json").last

    assert (before.code, len(before.out.splitlines()), none) == (0, 1, [])
    assert "moods" in shown.out
    assert rows[0]["states"] == {"answered": {"records": 3, "questions": 3}}
    assert (rows[0]["models"], rows[0]["prompt_versions"]) == (["practice"], ["v3"])


def test_show_marks_machine_made_answers(collected: Terminal, task: Path) -> None:
    collected("enrich", "run", task, "--json")

    shown = collected("enrich", "show", "shop/1")
    (row,) = collected("enrich", "show", "1", "--json").last["enrichments"]

    assert shown.code == 0
    assert all(text in shown.out for text in ("machine", "practice", "v3", "mood: "))
    assert (row["made_by"], row["model"], row["prompt_version"]) == ("machine", "practice", "v3")
    assert row["answer"]["mood"] in {"plain", "[/b]eager"}


def test_a_task_of_an_enricher_needs_no_model(collected: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "worth.yaml"
    file.write_text(LOCAL)

    answer = collected("enrich", "run", file)
    shown = collected("enrich", "show", "shop/1")

    assert answer.code == 0
    assert all(text in answer.out for text in ("complete", "worth", "3 answered"))
    assert all(text in shown.out for text in ("machine", "currency", "2026-01-02"))
    assert "price_eur: 2.5" in shown.out


def test_a_task_whose_library_is_missing_says_how_to_install_it(
    collected: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)
    file = tmp_path / "language.yaml"
    file.write_text("enrich: tongue\nsources: shop\nenricher: {language: {fields: title}}\n")

    answer = collected("enrich", "run", file)

    assert answer.code == 2
    assert isinstance(answer.error, MissingExtra)
    assert answer.error.extra == "language"
    assert "pip install 'longline[language]'" in answer.err
    assert "Traceback" not in answer.err


def test_show_of_a_record_without_questions_has_no_answers(collected: Terminal) -> None:
    shown = collected("enrich", "show", "1").out.splitlines()

    assert (shown[0], len(shown)) == ("shop/1", 2)
    assert collected("enrich", "show", "1", "--json").last["enrichments"] == []


@pytest.mark.parametrize(
    ("words", "kind", "mentioned"),
    [
        (("run", "nowhere.yaml"), BadFile, "nowhere.yaml"),
        (("run", "shop.py"), BadFile, "shop.py"),
        (("show", "nobody"), UnknownRecord, "'nobody'"),
        (("status", "nothing"), BadOption, "'nothing'"),
        (("retry", "nothing"), BadOption, "'nothing'"),
        (("retry", "nowhere.yaml"), BadFile, "nowhere.yaml"),
        (("run", "task.yaml", "--limit", "0"), click.BadParameter, "--limit"),
    ],
)
@pytest.mark.usefixtures("task")
def test_bad_input_is_refused(
    collected: Terminal, words: tuple[str, ...], kind: type[Exception], mentioned: str
) -> None:
    answer = collected("enrich", *words)

    assert answer.code == 2
    assert isinstance(answer.error, kind)
    assert mentioned in answer.err
    assert "Traceback" not in answer.err


def test_a_wrong_condition_is_refused_before_anything_is_asked(
    collected: Terminal, task: Path, model: LanguageModel
) -> None:
    task.write_text(TASK.format(url=model.url, more="") + "where: [price]\n")

    answer = collected("enrich", "run", task)

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == "where"
    assert "'price'" in answer.error.problem
    assert model.tally.asked.total() == 0


@pytest.mark.parametrize(
    ("change", "kind", "mentioned"),
    [
        (("{title}", "{titel}"), BadOption, ("prompt: ", "'titel'", "title")),
        (("[shop]", "[nope]"), BadOption, ("sources: ", "nope", "shop")),
        (("mood? {", "mood? {x {"), BadFile, ("task.yaml:6:1: prompt: ", "{name}")),
    ],
    ids=["field", "source", "brace"],
)
def test_an_invalid_task_is_refused_before_any_change(
    collected: Terminal,
    task: Path,
    model: LanguageModel,
    *,
    change: tuple[str, str],
    kind: type[LonglineError],
    mentioned: tuple[str, ...],
) -> None:
    collected("enrich", "run", task, "--limit", "1", "--json")
    before = collected("enrich", "status", "--json").last
    task.write_text(task.read_text().replace(*change))

    answer = collected("enrich", "run", task)

    assert answer.code == 2
    assert isinstance(answer.error, kind)
    assert [text for text in mentioned if text not in answer.err] == []
    assert collected("enrich", "status", "--json").last == before
    assert model.tally.asked.total() == 1


def test_a_source_without_records_is_a_warning_for_programs_too(
    collected: Terminal, task: Path
) -> None:
    task.write_text(task.read_text().replace("[shop]", "[shop, shopp]"))

    answer = collected("enrich", "run", task, "--json")

    assert (answer.code, answer.last["state"]) == (0, "complete")
    (warning,) = answer.err.splitlines()
    assert warning.startswith("warning: ")
    assert all(text in warning for text in ("sources", "shopp"))


@pytest.mark.parametrize("name", ["run", "status", "show", "retry"])
def test_every_command_of_enrich_has_help(longline: Terminal, name: str) -> None:
    answer = longline("enrich", name, "--help")

    assert answer.code == 0
    assert answer.out.startswith(f"Usage: longline enrich {name}")
