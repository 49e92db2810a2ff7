"""longline duplicates: found, listed, shown side by side, confirmed and rejected."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from longline.core.errors import BadFile, BadOption, LonglineError, UnknownRecord
from longline.storage.store import open_store
from tests.analysis.ads import EXAMPLE, HOMES, IMOTI, WOHNEN, flat, put
from tests.cli.terminal import Terminal

LONG = "an-address-as-long-as-sites-make-them-when-they-put-the-title-into-it-"
KEYS = (f"{IMOTI}/1", f"{HOMES}/2")


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+", text)


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
def test_finding_compares_new_records_only(longline: Terminal) -> None:
    first = longline("duplicates", "find", EXAMPLE, "--json").last
    again = longline("duplicates", "find", EXAMPLE, "--json").last

    assert (first["kind"], first["records"], first["matched"]) == ("property", 4, 3)
    assert (again["kind"], again["records"], again["crowded"]) == ("property", 0, {})


@pytest.mark.usefixtures("ads")
def test_finding_prints_what_was_done(longline: Terminal) -> None:
    answer = longline("duplicates", "find", EXAMPLE)

    assert answer.code == 0
    assert "property" in answer.out
    assert {"4", "3"} <= set(numbers(answer.out))


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
def test_a_group_is_shown_with_its_evidence(longline: Terminal) -> None:
    answer = longline("duplicates", "show", "property", f"{HOMES}/2")

    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert all(key in answer.out for key in KEYS)
    shown = longline("duplicates", "show", "property", f"{HOMES}/2", "--json").last
    assert [one["record"] for one in shown["records"]] == [*KEYS, f"{WOHNEN}/3"]
    assert [pair["is_match"] for pair in shown["pairs"]] == [True] * 3


@pytest.mark.usefixtures("compared")
def test_a_contradicted_field_is_noted(longline: Terminal) -> None:
    answer = longline("duplicates", "show", "property", f"{HOMES}/2")

    shown = longline("duplicates", "show", "property", f"{HOMES}/2", "--json").last
    merged = {field["name"]: field for field in shown["merged"]}
    assert (merged["lift"]["value"], merged["lift"]["record"]) == (None, None)
    notes = [line.partition(": ")[0] for line in answer.out.splitlines()]
    assert ("lift" in notes, "city" in notes) == (True, False)


@pytest.mark.usefixtures("compared")
def test_a_record_without_matches_is_shown_alone(longline: Terminal) -> None:
    answer = longline("duplicates", "show", "property", f"{WOHNEN}/4")

    shown = longline("duplicates", "show", "property", f"{WOHNEN}/4", "--json").last
    assert f"{WOHNEN}/4" in answer.out
    assert [one["record"] for one in shown["records"]] == [f"{WOHNEN}/4"]
    assert shown["pairs"] == []


@pytest.mark.usefixtures("compared")
def test_rejected_pairs_leave_the_group(longline: Terminal) -> None:
    answer = longline("duplicates", "reject", "property", *KEYS)

    assert answer.code == 0
    assert all(text in answer.out for text in (*KEYS, "rejected"))
    longline("duplicates", "find", EXAMPLE)
    rows = longline("duplicates", "list", "--json").out.splitlines()
    assert [len(json.loads(row)["records"]) for row in rows] == [2]


@pytest.mark.usefixtures("compared")
def test_confirmed_pairs_form_a_group(longline: Terminal) -> None:
    answer = longline("duplicates", "confirm", "property", KEYS[0], f"{WOHNEN}/4", "--json")

    assert answer.last["decision"] == "confirmed"
    shown = longline("duplicates", "show", "property", KEYS[0], "--json").last
    assert [one["record"] for one in shown["records"]] == [KEYS[0], f"{WOHNEN}/4"]


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
def test_a_list_that_stops_shows_the_total(longline: Terminal) -> None:
    usual = longline("duplicates", "list").out.splitlines()
    short = longline("duplicates", "list", "--limit", "3").out.splitlines()
    whole = longline("duplicates", "list", "--limit", "25").out.splitlines()

    assert (len(usual), numbers(usual[-1])) == (22, ["20", "25"])
    assert (len(short), numbers(short[-1])) == (5, ["3", "25"])
    assert len(whole) == 26  # the heading and all of them, and no more


@pytest.mark.usefixtures("many")
def test_a_list_for_programs_is_whole_unless_limited(longline: Terminal) -> None:
    whole = longline("duplicates", "list", "--json")
    limited = longline("duplicates", "list", "--json", "--limit", "3")

    assert (len(whole.out.splitlines()), whole.err) == (25, "")
    assert (len(limited.out.splitlines()), numbers(limited.err)) == (3, ["3", "25"])


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("columns", ["30", "80", "200"])
def test_the_name_of_a_record_is_never_cut(
    longline: Terminal, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)

    listed = longline("duplicates", "list", "--limit", "1").out
    shown = longline("duplicates", "show", "property", f"{IMOTI}/{LONG}00").out

    assert listed.splitlines()[1].split()[:4] == ["property", f"{IMOTI}/{LONG}00", "2", IMOTI]
    assert f"{IMOTI}/{LONG}00 " in shown
    assert f"{IMOTI}/{LONG}01" in shown


@pytest.fixture
def misspelt(tmp_path: Path) -> Path:
    """The example's rules with a misspelt source and a misspelt field."""
    path = tmp_path / "misspelt.yaml"
    text = EXAMPLE.read_text("utf-8").replace(WOHNEN, "listings_wonen")
    path.write_text(text.replace("building_type:", "building_tipe:"), "utf-8")
    return path


@pytest.mark.usefixtures("compared")
def test_unknown_names_in_the_rules_cause_a_warning(longline: Terminal, misspelt: Path) -> None:
    found = longline("duplicates", "find", misspelt, "--json").last
    answer = longline("duplicates", "find", misspelt)

    assert found["dropped"] == 2
    assert found["unknown_sources"] == ["listings_wonen"]
    assert found["unknown_fields"] == ["building_tipe"]
    source, field = (line for line in answer.out.splitlines() if line.startswith("warning: "))
    assert "listings_wonen" in source
    assert "building_tipe" in field


@pytest.mark.usefixtures("compared")
def test_the_number_of_dropped_pairs_is_printed(longline: Terminal, misspelt: Path) -> None:
    answer = longline("duplicates", "find", misspelt)

    assert answer.code == 0
    assert numbers(answer.out.splitlines()[-1]) == ["2"]


@pytest.mark.usefixtures("compared")
def test_contradictory_decisions_are_shown(longline: Terminal) -> None:
    longline("duplicates", "confirm", "property", KEYS[0], f"{WOHNEN}/4")
    longline("duplicates", "confirm", "property", *KEYS)
    longline("duplicates", "reject", "property", KEYS[1], f"{WOHNEN}/4")

    answer = longline("duplicates", "show", "property", f"{WOHNEN}/4")

    shown = longline("duplicates", "show", "property", f"{WOHNEN}/4", "--json").last
    assert shown["parted"] == [
        {"left": KEYS[0], "right": f"{WOHNEN}/4", "rejected": [[KEYS[1], f"{WOHNEN}/4"]]}
    ]
    assert all(text in answer.out for text in (*KEYS, "confirmed", "rejected"))


@pytest.mark.usefixtures("compared")
@pytest.mark.parametrize(
    ("words", "kind", "mentioned"),
    [
        (("show", "book", "a/b"), BadOption, ("KIND", "'book'", "property")),
        (("list", "book"), BadOption, ("KIND", "'book'")),
        (("show", "property", "7"), BadOption, ("KEY", "'7'", "source/key")),
        (("show", "property", f"{IMOTI}/99"), UnknownRecord, (f"{IMOTI}/99",)),
        (("confirm", "property", KEYS[0], KEYS[0]), BadOption, ("OTHER", "KEY")),
        (("find", "nowhere.yaml"), BadFile, ("nowhere.yaml",)),
    ],
)
def test_bad_input_is_one_line(
    longline: Terminal,
    words: tuple[str, ...],
    kind: type[LonglineError],
    mentioned: tuple[str, ...],
) -> None:
    answer = longline("duplicates", *words)

    assert (answer.code, answer.out) == (2, "")
    assert isinstance(answer.error, kind)
    assert [text for text in mentioned if text not in answer.err] == []
    assert len(answer.err.splitlines()) == 1


def test_an_empty_home_has_none(longline: Terminal) -> None:
    assert "longline duplicates find" in longline("duplicates", "list").out
    assert longline("duplicates", "list", "--json").out == ""


@pytest.mark.parametrize("name", ["find", "list", "show", "confirm", "reject"])
def test_every_command_has_help(longline: Terminal, name: str) -> None:
    answer = longline("duplicates", name, "--help")

    assert answer.out.startswith(f"Usage: longline duplicates {name}")
