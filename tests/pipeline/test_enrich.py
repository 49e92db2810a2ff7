"""Local enrichers: what they add, and what they leave empty with a reason: nothing is guessed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from longline.core.errors import BadFile, BadOption
from longline.pipeline.enrich import Addition, Enrich, Enrichers, make_enricher
from tests.pipeline.drafts import draft

RATES: dict[str, Any] = {"to": "EUR", "rates": {"BGN": 0.51129, "USD": 0.9}, "date": "2026-01-02"}
TABLE = [
    {"city": "Sofia", "country": "BG", "lat": 42.7, "lon": 23.3, "region": "Sofia-grad"},
    {"city": "Paris", "country": "FR", "lat": 48.9, "lon": 2.4},
    {"city": "Paris", "country": "US", "lat": 33.7, "lon": -95.6},
]


class Shouting:
    name = "shouting"

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        return Addition({"title": data["title"].upper(), "loud": True})


def euros(data: dict[str, Any], **options: Any) -> Addition:
    return make_enricher("currency", {"field": "price", **RATES, **options}).enrich(data)


def place(data: dict[str, Any], **options: Any) -> Addition:
    return make_enricher("geocode", {"by": "city", "table": TABLE, **options}).enrich(data)


@pytest.mark.parametrize(
    ("price", "worth"),
    [
        ({"amount": 100, "currency": "BGN"}, 51.13),
        ({"amount": 0, "currency": "BGN"}, 0.0),
        ({"amount": 7.005, "currency": "EUR"}, 7.01),
        ({"amount": 10, "currency": "usd"}, 9.0),
    ],
)
def test_money_is_converted_by_the_table(price: dict[str, Any], worth: float) -> None:
    added = euros({"price": price})

    assert added.fields == {"price_eur": worth}
    assert added.origin is not None
    assert added.origin.startswith("currency")
    assert "price" in added.origin
    assert RATES["date"] in added.origin


def test_the_currency_of_a_number_comes_from_another_field_or_assume() -> None:
    assert euros({"price": 10, "unit": "USD"}, currency="unit").fields == {"price_eur": 9.0}
    assert euros({"price": 10}, assume="USD", into="worth").fields == {"worth": 9.0}


@pytest.mark.parametrize(
    ("price", "datum"),
    [
        (None, "amount"),
        ("10", "amount"),
        (True, "amount"),
        (float("inf"), "amount"),
        (10, "currency"),
        ({"amount": None, "currency": "BGN"}, "amount"),
        ({"amount": 1, "currency": "GBP"}, "GBP"),
        ({"amount": 1e300, "currency": "BGN"}, "large"),
    ],
)
def test_a_price_that_cannot_be_converted_is_null_with_a_note(price: Any, datum: str) -> None:
    added = euros({"price": price})

    assert added.fields == {"price_eur": None}
    (note,) = added.notes
    assert note.field == "price_eur"
    assert datum in note.text


@pytest.mark.parametrize(
    "options", [{"rates": {}}, {"rates": {"BGN": 0}}, {"rates": {"lev": 1}}, {"date": None}]
)
def test_a_table_of_rates_needs_rates_and_their_day(options: dict[str, Any]) -> None:
    with pytest.raises(BadOption):
        euros({}, **options)


def test_a_place_is_found_in_any_case() -> None:
    added = place({"city": "  soFIA "})

    assert added.fields["place"] == {
        "country": "BG",
        "lat": 42.7,
        "lon": 23.3,
        "region": "Sofia-grad",
    }


@pytest.mark.parametrize(
    ("data", "datum"),
    [
        ({"city": "Plovdiv"}, "plovdiv"),
        ({"city": "Paris"}, "paris"),
        ({"city": None}, "city"),
        ({}, "city"),
    ],
)
def test_a_place_that_is_not_known_for_sure_is_null(data: dict[str, Any], datum: str) -> None:
    added = place(data)

    assert added.fields == {"place": None}
    (note,) = added.notes
    assert note.field == "place"
    assert datum in note.text


def test_two_columns_distinguish_places_of_the_same_name() -> None:
    added = place({"city": "Paris", "land": "us"}, by={"city": "city", "country": "land"})

    assert added.fields["place"] == {"lat": 33.7, "lon": -95.6}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("towns.csv", "city,lat,lon,region\nSofia,42.7,23.3,\n"),
        ("towns.json", '[{"city": "Sofia", "lat": 42.7, "lon": 23.3, "region": null}]'),
    ],
)
def test_a_table_may_be_a_file(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)

    added = place({"city": "Sofia"}, table=None, file=str(path))

    assert added.fields["place"] == {"lat": 42.7, "lon": 23.3, "region": None}


@pytest.mark.parametrize(
    ("name", "text", "data"),
    [
        ("towns.csv", "city,lat\nSofia,north\n", ["row 1", "lat"]),
        ("towns.csv", "city,lat\nSofia,91\n", ["lat", "90"]),
        ("towns.csv", "town,lat\nSofia,42\n", ["row 1", "city"]),
        ("towns.json", "{}", ["list"]),
        ("towns.json", "[", ["JSON"]),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(
    tmp_path: Path, name: str, text: str, data: list[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(BadFile) as refused:
        place({}, table=None, file=str(path))

    assert refused.value.path == str(path)
    assert [datum for datum in data if datum not in refused.value.problem] == []


def test_a_stage_adds_with_provenance_and_replaces_no_value() -> None:
    given = draft({"title": "Flat"}, title="page a")

    enriched = Enrich(Shouting())(given)

    assert enriched.data == {"title": "Flat", "loud": True}
    assert enriched.provenance == {"title": "page a", "loud": "shouting"}
    (note,) = enriched.notes
    assert note.field == "title"
    assert "shouting" in note.text


def test_enrichers_are_made_of_what_is_written() -> None:
    written = Enrichers.model_validate(
        {"currency": {"field": "price", **RATES}, "geocode": {"by": "city", "table": TABLE}}
    )

    enriched = Enrich.from_manifest(written)(
        draft({"price": {"amount": 1, "currency": "USD"}, "city": "Sofia"})
    )

    assert enriched.data["price_eur"] == 0.9
    assert enriched.data["place"]["region"] == "Sofia-grad"


def test_an_enricher_may_come_from_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "loudness-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: loudness\nVersion: 1\n")
    entry = "[longline.enrichers]\nloud = tests.pipeline.test_enrich:Shouting\n"
    (folder / "entry_points.txt").write_text(entry)

    written = Enrichers.model_validate({"loud": {}})

    assert Enrich.from_manifest(written)(draft({"title": "Flat"})).data["loud"] is True
