"""`longline drift`, after runs of a shop that once had prices."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from longline.cli.commands.jobs import drift_command
from longline.core.errors import UnknownJob
from longline.drift.monitor import NoRunEnded
from tests.cli.terminal import Terminal

SHOP = '''
"""A shop that may lose its prices."""

from pathlib import Path

from longline import Item, Source, layer

PRICED = Path(__file__).with_name("priced")


class Shop(Source):
    """Things without a web."""

    name = "shop[x]"

    async def discover(self, visit):
        for number in range(60):
            yield Item(str(number), f"https://shop.test/{number}")

    @layer()
    async def page(self, visit):
        number = int(visit.item.key)
        return {"title": f"Thing {number}", "price": number if PRICED.exists() else None}
'''


@pytest.fixture
def drifted(longline: Terminal, tmp_path: Path) -> str:
    """A home with a good run of the shop, and one without prices; the job of the second."""
    path = tmp_path / "auction.py"
    path.write_text(SHOP)
    path.with_name("priced").touch()
    longline("run", path, "--json")
    path.with_name("priced").unlink()
    answer = longline("run", path, "--json")
    assert answer.code == 3
    assert answer.last["state"] == "partial"
    assert "price" in answer.last["reason"]
    return str(answer.last["job"])


def ask(*words: str) -> Result:
    runner = CliRunner(env={"COLUMNS": "200"})
    answer = runner.invoke(drift_command, [*words], standalone_mode=False)
    if answer.exception is not None:
        raise answer.exception
    return answer


def test_a_home_without_runs_has_no_sources(home: Path) -> None:
    assert not home.exists()
    assert "longline demo" in ask().output
    assert json.loads(ask("--json").output) == []


def test_sources_are_listed_with_what_has_drifted(drifted: str) -> None:
    (row,) = ask().output.splitlines()[1:]

    assert row.split()[:2] == ["shop[x]", drifted]
    assert row.split()[-2:] == ["60", "price"]


def test_the_fields_of_a_source_are_shown_before_and_now(drifted: str) -> None:
    lines = ask("shop[x]").output.splitlines()

    rows = {words[0]: words[1:] for line in lines[:-1] if (words := line.split())}
    assert all(text in lines[0] for text in ("shop[x]", drifted, "60"))
    assert re.findall(r"\d+", lines[1]) == ["1", "60"]
    assert rows["price"] == ["100%", "0%", "number", "30"]
    assert rows["title"][:4] == ["100%", "100%", "text", "text"]
    assert "price" in lines[-1]
    assert "title" not in lines[-1]


def test_enrich_status_is_available_as_json(drifted: str) -> None:
    listed, shown = (
        json.loads(ask(*words).output) for words in (["--json"], ["shop[x]", "--json"])
    )

    price = next(one for one in shown["fields"] if one["field"] == "price")
    assert [one["job"] for one in listed] == [drifted]
    assert (shown["is_sound"], shown["state"]) == (False, "partial")
    assert list(shown["drift"]) == ["price"]
    assert shown["drift"]["price"] in shown["reason"]
    assert (price["before"]["filled"], price["now"]["filled"]) == (1.0, 0.0)


def test_an_accepted_run_becomes_the_baseline(
    drifted: str, longline: Terminal, tmp_path: Path
) -> None:
    accepted = ask("accept", drifted).output

    again = longline("run", tmp_path / "auction.py", "--json")

    assert "shop[x]" in accepted
    assert drifted in accepted
    assert (again.code, again.last["state"], again.last["reason"]) == (0, "complete", None)


def test_a_later_run_does_not_change_a_baseline(
    drifted: str, longline: Terminal, tmp_path: Path
) -> None:
    longline("run", tmp_path / "auction.py", "--json")
    last = json.loads(ask("shop[x]", "--json").output)

    ask("accept", drifted)

    again = json.loads(ask("shop[x]", "--json").output)
    assert (again["job"], again["baseline"]) == (last["job"], {"runs": 1, "records": 60})
    assert list(again["drift"]) == ["price"]


def test_an_unknown_source_is_refused_with_the_known_ones(drifted: str) -> None:
    del drifted

    with pytest.raises(NoRunEnded) as error:
        ask("other")

    assert (error.value.source, error.value.known) == ("other", ("shop[x]",))


def test_an_unknown_job_is_refused(home: Path) -> None:
    assert not home.exists()
    with pytest.raises(UnknownJob):
        ask("accept", "nothing")


@pytest.mark.parametrize("words", [["--help"], ["show", "--help"], ["accept", "--help"]])
def test_every_option_has_help(words: list[str]) -> None:
    assert "Options" in ask(*words).output
