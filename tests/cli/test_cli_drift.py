"""`longline drift`, after runs of a shop that once had prices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.terminal import Terminal
from longline.cli.drift import command
from longline.errors import BadOption, UnknownJob

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
    assert "drift: price is filled in 0 of" in answer.last["reason"]
    return str(answer.last["job"])


def ask(*words: str) -> Result:
    runner = CliRunner(env={"COLUMNS": "200"})
    answer = runner.invoke(command, [*words], standalone_mode=False)
    if answer.exception is not None:
        raise answer.exception
    return answer


def test_a_home_without_runs_says_so(home: Path) -> None:
    assert not home.exists()
    assert ask().output == "no run has ended yet; try: longline demo\n"


def test_sources_are_listed_with_what_has_drifted(drifted: str) -> None:
    (row,) = ask().output.splitlines()[1:]

    assert row.split()[:2] == ["shop[x]", drifted]
    assert row.split()[-2:] == ["60", "price"]


def test_the_fields_of_a_source_are_shown_before_and_now(drifted: str) -> None:
    lines = ask("shop[x]").output.splitlines()

    rows = {words[0]: words[1:] for line in lines if (words := line.split())}
    assert lines[0] == f"shop[x]: last run {drifted}, 60 records"
    assert lines[1] == "measured by 1 earlier runs, 60 records"
    assert rows["price"] == ["100%", "0%", "number", "30"]
    assert rows["title"][:4] == ["100%", "100%", "text", "text"]
    assert lines[-1] == "drift: price"


def test_a_program_is_answered_in_json(drifted: str) -> None:
    listed, shown = (
        json.loads(ask(*words).output) for words in (["--json"], ["shop[x]", "--json"])
    )

    price = next(one for one in shown["fields"] if one["field"] == "price")
    assert [one["job"] for one in listed] == [drifted]
    assert (shown["is_sound"], shown["state"]) == (False, "partial")
    assert f"drift: {shown['drift']['price']}" == shown["reason"]
    assert (price["before"]["filled"], price["now"]["filled"]) == (1.0, 0.0)


def test_an_accepted_run_is_the_measure_from_then_on(
    drifted: str, longline: Terminal, tmp_path: Path
) -> None:
    told = ask("accept", drifted).output

    again = longline("run", tmp_path / "auction.py", "--json")

    assert told == f"later runs of shop[x] are measured by {drifted}\n"
    assert (again.code, again.last["state"], again.last["reason"]) == (0, "complete", None)


def test_a_later_run_does_not_change_what_a_run_was_measured_by(
    drifted: str, longline: Terminal, tmp_path: Path
) -> None:
    longline("run", tmp_path / "auction.py", "--json")
    last = json.loads(ask("shop[x]", "--json").output)

    ask("accept", drifted)

    again = json.loads(ask("shop[x]", "--json").output)
    assert (again["job"], again["baseline"]) == (last["job"], {"runs": 1, "records": 60})
    assert list(again["drift"]) == ["price"]


def test_an_unknown_source_is_refused_with_those_there_are(drifted: str) -> None:
    del drifted

    with pytest.raises(BadOption, match=r"no run of 'other' has ended here; known are: shop\[x\]"):
        ask("other")


def test_an_unknown_job_is_refused(home: Path) -> None:
    assert not home.exists()
    with pytest.raises(UnknownJob):
        ask("accept", "nothing")


@pytest.mark.parametrize("words", [["--help"], ["show", "--help"], ["accept", "--help"]])
def test_every_word_is_explained(words: list[str]) -> None:
    assert "Options" in ask(*words).output
