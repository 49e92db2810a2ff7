"""The whole pipeline: stages as a source declares them, in Python and in a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pydantic import BaseModel

from longline.config.documents import read_document
from longline.core.errors import BadFile, BadSource, NothingToStore
from longline.core.model import Item, Note, Record
from longline.pipeline.enrich import Currency, Enrich
from longline.pipeline.filter import Filter
from longline.pipeline.map import Map
from longline.pipeline.pipeline import Material, Pipeline, Validate, unpack_material
from longline.pipeline.stages import Draft, StageFailed, ValidationFailed
from longline.sources.base import Source, Visit, layer
from longline.sources.html.source import html_source
from longline.sources.manifest import make_manifest, parse_manifest, resolve_files

ITEM = Item("7", "https://shop.test/7")
FOUND = {"name": "Flat", "price": {"amount": 10, "currency": "USD"}, "city": "Sofia"}
MANIFEST = """
manifest: html
name: shop
start: https://shop.test
fields: {name: h1, price: .price, city: .city}
pipeline:
  - map: {title: name, price_usd: price.amount, price: price, city: city}
  - filter: "price_usd > `0`"
  - validate: {type: object, required: [title], properties: {title: {type: string}}}
  - enrich:
      currency: {field: price, to: EUR, rates: {USD: 0.9}, date: 2026-01-02}
      geocode: {by: city, table: [{city: Sofia, lat: 42.7, lon: 23.3}]}
"""


class Flat(BaseModel):
    title: str
    amount: float


class Shop(Source):
    name = "shop"

    @layer()
    async def page(self, visit: Visit) -> Mapping[str, Any]:
        return visit.item.data


class Plain(Shop):
    Record = Flat


class Staged(Shop):
    Record = Flat
    pipeline = (
        Map({"title": "name", "amount": "price.amount", "price": "price"}),
        Filter("amount > `0`"),
        Enrich(
            Currency(
                field="amount", assume="USD", to="EUR", rates={"USD": 0.9}, date=date(2026, 1, 2)
            )
        ),
    )


class Vandal:
    name = "vandal"

    def __call__(self, draft: Draft) -> Draft:
        draft.data["name"] = "mine"  # type: ignore[index]  # that is what must not work
        return draft


def record_of(source: Source, found: Mapping[str, Any] | None = None) -> Record:
    material = Material(
        {"page": found or FOUND},
        (Note("city", "from the map"),),
        dict.fromkeys(FOUND, "page https://shop.test/7"),
        {"city": "page .city"},
        {"page": "ok"},
    )
    return Pipeline(source).record(ITEM, material)


def manifested(text: str, tmp_path: Path) -> Source:
    path = tmp_path / "shop.yaml"
    path.write_text(dedent(text))
    return html_source(parse_manifest(read_document(path)))()  # type: ignore[arg-type]  # of the kind it says


def test_a_source_without_a_pipeline_makes_records() -> None:
    record = record_of(Shop())

    assert record.data == FOUND
    assert type(record.data) is dict
    assert record.provenance["city"] == "page .city"
    assert record.notes == (Note("city", "from the map"),)


def test_the_model_is_checked_without_a_pipeline() -> None:
    with pytest.raises(ValidationFailed) as failed:
        record_of(Plain())

    assert failed.value.problems[0].startswith("title: ")


def test_the_model_is_checked_after_maps_and_filters_and_before_what_is_added() -> None:
    record = record_of(Staged())

    assert record.data == {"title": "Flat", "amount": 10.0, "amount_eur": 9.0}
    assert record.provenance.keys() == {"title", "amount", "amount_eur"}
    assert record.provenance["title"] == "page https://shop.test/7"
    assert record.provenance["amount"] == "page https://shop.test/7"
    assert record.provenance["amount_eur"].startswith("currency")
    assert "2026-01-02" in record.provenance["amount_eur"]


def test_a_filter_of_the_pipeline_leaves_an_item_out() -> None:
    with pytest.raises(NothingToStore, match="amount > `0`"):
        record_of(Staged(), {**FOUND, "price": {"amount": 0}})


def test_the_same_data_has_the_same_fingerprint_with_and_without_stages() -> None:
    class Kept(Shop):
        pipeline = (Map({"*": "*"}),)

    assert record_of(Kept()).fingerprint == record_of(Shop()).fingerprint


def test_a_stage_that_changes_data_is_named() -> None:
    class Vandalised(Shop):
        pipeline = (Vandal(),)

    with pytest.raises(StageFailed) as failed:
        record_of(Vandalised())

    assert failed.value.layer == "vandal"
    assert failed.value.problem.startswith("TypeError")


def test_an_object_that_is_not_a_stage_is_refused_before_the_first_item() -> None:
    class Odd(Shop):
        pipeline = ("map",)

    with pytest.raises(BadSource) as refused:
        Pipeline(Odd())

    assert refused.value.reference == "shop"
    assert "'map'" in refused.value.problem


def test_a_manifest_declares_its_stages(tmp_path: Path) -> None:
    record = record_of(manifested(MANIFEST, tmp_path))

    assert record.data == {
        "title": "Flat",
        "price_usd": 10,
        "price": {"amount": 10, "currency": "USD"},
        "city": "Sofia",
        "price_eur": 9.0,
        "place": {"lat": 42.7, "lon": 23.3},
    }


def test_a_manifest_keeps_its_pipeline_in_a_job(tmp_path: Path) -> None:
    values = {"manifest": "html", "name": "shop", "start": "https://shop.test"}
    values |= {"fields": {"name": "h1"}, "pipeline": [{"filter": "name"}]}  # type: ignore[dict-item]

    kept = make_manifest(values)

    assert len(kept.pipeline) == 1
    assert manifested(MANIFEST, tmp_path).pipeline != ()


@pytest.mark.parametrize(
    ("stage", "place", "datum"),
    [
        ("- mapp: {a: b}", "7:5", "`map`"),
        ("- map: {a: b.}", "7:11", "'b.'"),
        ("- {map: {a: b}, filter: a}", "7", "map, filter, validate, enrich"),
        ("- validate: {type: text}", "7:16", "JSON Schema"),
        ("- enrich: {fortune: {}}", "7", "'fortune'"),
        ("- enrich: {currency: {field: p, to: EUR, rates: {USD: 1}}}", "7", "date"),
        ("- enrich: {geocode: {by: city}}", "7", "table"),
        ("- filter: [{field: a, above: 1, below: 2}]", "7", "at_least"),
    ],
)
def test_a_broken_stage_is_refused_with_its_place(
    tmp_path: Path, stage: str, place: str, datum: str
) -> None:
    text = f"""\
    manifest: html
    name: shop
    start: https://shop.test
    fields:
      name: h1
    pipeline:
      {stage}
    """

    with pytest.raises(BadFile) as refused:
        manifested(text, tmp_path)

    assert datum in refused.value.problem
    assert f":{place}" in str(refused.value)


def test_files_next_to_a_manifest_are_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "flat.json").write_text('{"required": ["title"]}')
    steps = [
        {"validate": {"file": "flat.json"}},
        {"enrich": {"geocode": {"by": "city", "file": "towns.csv"}}},
        {"filter": "title"},
    ]

    found = resolve_files({"name": "shop", "pipeline": steps}, tmp_path)

    assert found["pipeline"][0] == {"validate": {"required": ["title"]}}
    assert found["pipeline"][1]["enrich"]["geocode"]["file"] == str(tmp_path / "towns.csv")
    assert found["pipeline"][2] == {"filter": "title"}


@pytest.mark.parametrize("values", [{}, {"pipeline": "x"}, {"pipeline": [5, {"enrich": 5}]}])
def test_an_invalid_pipeline_is_left_to_validation(values: dict[str, Any]) -> None:
    assert resolve_files(values, Path()) == values


def test_a_schema_file_of_a_manifest_is_found_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flat.json").write_text('{"required": ["nothing"]}')
    source = manifested(
        MANIFEST.partition("pipeline:")[0] + "pipeline: [{validate: {file: flat.json}}]", tmp_path
    )

    with pytest.raises(ValidationFailed) as failed:
        record_of(source)

    assert [one.partition(":")[0] for one in failed.value.problems] == ["nothing"]


def test_a_validate_stage_accepts_a_model() -> None:
    class Modelled(Shop):
        pipeline = (Map({"title": "name", "amount": "price.amount"}), Validate(Flat))

    assert record_of(Modelled()).data == {"title": "Flat", "amount": 10.0}


@pytest.mark.parametrize("raw", [None, [], "x", {}])
def test_an_item_without_material_has_no_results(raw: Any) -> None:
    assert unpack_material(raw).results == {}
