"""longline duplicates: found, listed, shown side by side, confirmed and rejected."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cli.terminal import Terminal
from longline.stores.store import open_store
from matching.ads import EXAMPLE, HOMES, IMOTI, WOHNEN, flat, put

LONG = "an-address-as-long-as-sites-make-them-when-they-put-the-title-into-it-"
KEYS = (f"{IMOTI}/1", f"{HOMES}/2")


@pytest.fixture
def ads(home: Path) -> None:
    """Three ads of one flat, and one of another; their sites write what they like."""
    home.mkdir()

    async def fill() -> None:
        with open_store(f"sqlite:///{home / 'longline.sqlite'}") as store:
            await put(store.records, IMOTI, "1", flat(title="Flat [/b] \x1b[31m", lift=True))
            await put(
                store.records, HOMES, "2", flat(title="Flat", price_eur=230_000.0, lift=False)
            )
            await put(store.records, WOHNEN, "3", flat(floor=None, year=None))
            await put(store.records, WOHNEN, "4", flat(city="Варна", neighbourhood="Чайка"))

    asyncio.run(fill())


@pytest.fixture
def compared(ads: None, longline: Terminal) -> None:
    del ads
    assert longline("duplicates", "find", EXAMPLE).code == 0


@pytest.mark.usefixtures("ads")
def test_finding_says_what_was_done(longline: Terminal) -> None:
    answer = longline("duplicates", "find", EXAMPLE)

    assert answer.code == 0
    assert answer.out.startswith("property: 4 records new or changed, ")
    assert ", 3 match (" in answer.out
    again = longline("duplicates", "find", EXAMPLE, "--json").last
    assert (again["kind"], again["records"], again["crowded"]) == ("property", 0, {})


@pytest.mark.usefixtures("compared")
def test_the_list_shows_each_thing_once(longline: Terminal) -> None:
    answer = longline("duplicates", "list")

    (row,) = [line for line in answer.out.splitlines() if f"{IMOTI}/1" in line]
    assert row.split()[:3] == ["property", f"{IMOTI}/1", "3"]
    assert "Flat [/b] �[31m" in row
    assert longline("duplicates", "list", "property", "--json").last["sources"] == sorted(
        (IMOTI, HOMES, WOHNEN)
    )


@pytest.mark.usefixtures("compared")
def test_a_thing_is_shown_side_by_side_with_its_evidence(longline: Terminal) -> None:
    answer = longline("duplicates", "show", "property", f"{HOMES}/2")

    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert "lift: the records contradict each other" in answer.out
    assert "price_eur: from 230000 to 250000, a gap of 9%" in answer.out
    assert f"{KEYS[0]} and {KEYS[1]}: match, " in answer.out
    told = longline("duplicates", "show", "property", f"{HOMES}/2", "--json").last
    assert [one["record"] for one in told["records"]] == [*KEYS, f"{WOHNEN}/3"]
    assert len(told["pairs"]) == 3


@pytest.mark.usefixtures("compared")
def test_a_record_of_its_own_is_shown_alone(longline: Terminal) -> None:
    answer = longline("duplicates", "show", "property", f"{WOHNEN}/4")

    assert "no other record is the same" in answer.out


@pytest.mark.usefixtures("compared")
def test_what_is_rejected_is_no_longer_one_thing(longline: Terminal) -> None:
    answer = longline("duplicates", "reject", "property", *KEYS)

    assert (answer.code, answer.out) == (0, f"{KEYS[0]} and {KEYS[1]}: rejected\n")
    longline("duplicates", "find", EXAMPLE)
    rows = longline("duplicates", "list", "--json").out.splitlines()
    assert [len(json.loads(row)["records"]) for row in rows] == [2]


@pytest.mark.usefixtures("compared")
def test_what_is_confirmed_is_one_thing(longline: Terminal) -> None:
    answer = longline("duplicates", "confirm", "property", KEYS[0], f"{WOHNEN}/4", "--json")

    assert answer.last["decision"] == "confirmed"
    told = longline("duplicates", "show", "property", KEYS[0], "--json").last
    assert [one["record"] for one in told["records"]] == [KEYS[0], f"{WOHNEN}/4"]


@pytest.fixture
def many(home: Path, longline: Terminal) -> None:
    """Fifty ads of 25 flats, with long keys and long titles."""
    home.mkdir()

    async def fill() -> None:
        with open_store(f"sqlite:///{home / 'longline.sqlite'}") as store:
            for number in range(50):
                data = flat(title="A flat " * 12, floor=number // 2)
                await put(store.records, IMOTI, f"{LONG}{number:02}", data)

    asyncio.run(fill())
    assert longline("duplicates", "find", EXAMPLE).code == 0


@pytest.mark.usefixtures("many")
def test_a_list_that_stops_says_of_how_many(longline: Terminal) -> None:
    assert "20 of 25" in longline("duplicates", "list").out
    assert "3 of 25" in longline("duplicates", "list", "--limit", "3").out
    assert " of 25" not in longline("duplicates", "list", "--limit", "25").out


@pytest.mark.usefixtures("many")
def test_a_list_for_programs_is_whole_unless_limited(longline: Terminal) -> None:
    whole = longline("duplicates", "list", "--json")
    limited = longline("duplicates", "list", "--json", "--limit", "3")

    assert (len(whole.out.splitlines()), whole.err) == (25, "")
    assert (len(limited.out.splitlines()), limited.err) == (3, "3 of 25\n")


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("columns", ["30", "80", "200"])
def test_the_name_of_a_record_is_never_cut(
    longline: Terminal, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)

    listed = longline("duplicates", "list", "--limit", "1").out
    shown = longline("duplicates", "show", "property", f"{IMOTI}/{LONG}00").out

    assert listed.splitlines()[1].split()[:4] == ["property", f"{IMOTI}/{LONG}00", "2", IMOTI]
    assert f"{IMOTI}/{LONG}00 and {IMOTI}/{LONG}01: match" in shown


@pytest.mark.usefixtures("compared")
def test_names_in_the_rules_that_nothing_here_has_are_told(
    longline: Terminal, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.yaml"
    text = EXAMPLE.read_text("utf-8").replace(WOHNEN, "listings_wonen")
    wrong.write_text(text.replace("building_type:", "building_tipe:"), "utf-8")

    answer = longline("duplicates", "find", wrong)

    assert "warning: no record here is of the source listings_wonen" in answer.out
    assert "warning: no record has the field building_tipe" in answer.out
    assert "2 pairs were dropped" in answer.out
    told = longline("duplicates", "find", wrong, "--json").last
    assert told["unknown_sources"] == ["listings_wonen"]
    assert told["unknown_fields"] == ["building_tipe"]


@pytest.mark.usefixtures("compared")
def test_what_people_contradict_each_other_about_is_shown(longline: Terminal) -> None:
    longline("duplicates", "confirm", "property", KEYS[0], f"{WOHNEN}/4")
    longline("duplicates", "confirm", "property", *KEYS)
    longline("duplicates", "reject", "property", KEYS[1], f"{WOHNEN}/4")

    answer = longline("duplicates", "show", "property", f"{WOHNEN}/4")

    assert f"{KEYS[0]} and {WOHNEN}/4: confirmed, but kept apart" in answer.out
    assert f"rejected are: {KEYS[1]} and {WOHNEN}/4" in answer.out


@pytest.mark.usefixtures("compared")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "book", "a/b"), "KIND: nothing was compared as 'book'; known are: property"),
        (("list", "book"), "KIND: nothing was compared as 'book'"),
        (("show", "property", "7"), "KEY: '7' is not of the form source/key"),
        (("show", "property", f"{IMOTI}/99"), f"{IMOTI}/99"),
        (("confirm", "property", KEYS[0], KEYS[0]), "OTHER: it is the same record as KEY"),
        (("find", "nowhere.yaml"), "nowhere.yaml: No such file"),
    ],
)
def test_bad_input_is_one_sentence(longline: Terminal, words: tuple[str, ...], told: str) -> None:
    answer = longline("duplicates", *words)

    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err
    assert len(answer.err.splitlines()) == 1


def test_an_empty_home_has_none(longline: Terminal) -> None:
    assert "no duplicates are known" in longline("duplicates", "list").out
    assert longline("duplicates", "list", "--json").out == ""


@pytest.mark.parametrize("name", ["find", "list", "show", "confirm", "reject"])
def test_every_command_has_help(longline: Terminal, name: str) -> None:
    answer = longline("duplicates", name, "--help")

    assert answer.out.startswith(f"Usage: longline duplicates {name}")
