"""What counts as drift, how soon it is noticed, and what does not count."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pydantic import BaseModel

from longline.drift.detector import (
    ALIKE,
    DriftDetector,
    FieldDrift,
    far_fewer,
    find_uniformity,
    judge_run,
)
from longline.drift.profiles import (
    Profile,
    Shape,
    chance_of_fewer,
    profile_run,
    shape_of,
    shape_of_failure,
)
from longline.http.messages import Page
from longline.pipeline.map import Map
from longline.pipeline.pipeline import Validate
from longline.pipeline.stages import ValidationFailed
from longline.sources.html.fields import FieldSpec, make_readers, read_fields
from longline.sources.html.places import whole_page
from tests.drift.drifting_shapes import Change, put, shapes_of, without
from tests.pipeline.drafts import draft


def profile_of(shapes: Iterable[Shape]) -> Profile:
    return profile_run(shapes)[0]


def notices_of(shapes: list[Shape], history: Profile | None = None) -> dict[str, FieldDrift]:
    """Return what a detector notices in these records, by field."""
    detector = DriftDetector(history)
    return {
        notice.field: notice
        for place, shape in enumerate(shapes, 1)
        for notice in detector.add(shape, place)
    }


def history_of(seed: int, count: int = 200) -> Profile:
    return Profile.from_json(profile_of(shapes_of(seed, count, start=10_000)).as_json())


@pytest.mark.parametrize("seed", range(20))
def test_normal_variation_in_a_first_run_is_not_drift(seed: int) -> None:
    assert notices_of(shapes_of(seed, 600)) == {}


@pytest.mark.parametrize("seed", range(20))
def test_normal_variation_after_earlier_runs_is_not_drift(seed: int) -> None:
    assessment = judge_run(shapes_of(seed, 300), history_of(seed))

    assert (assessment.drift, assessment.warnings) == ((), ())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [1, 5, 15])
def test_a_small_site_is_not_drift(seed: int, count: int) -> None:
    history = history_of(seed + 1, count=15)

    assert judge_run(shapes_of(seed, count), history).drift == ()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["price", "title", "stock", "text"])
def test_an_emptied_field_is_noticed_within_20_items(seed: int, name: str) -> None:
    shapes = shapes_of(seed, 100) + shapes_of(seed, 50, without(name), start=100)

    notices = notices_of(shapes)

    assert set(notices) == {name}
    assert 100 < notices[name].place <= 120


CHANGES: dict[str, tuple[str, Change]] = {
    "number to text": ("price", put("price", str)),
    "text collapses": ("text", put("text", lambda _: "…")),
    "text grows": ("title", put("title", lambda text: text * 20)),
    "all equal": ("title", put("title", lambda _: "Welcome to our shop")),
    "half of them have it": ("signed", without("signed")),
    "object to text": ("seller", put("seller", lambda one: one["name"])),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_changed_field_is_noticed_within_50_items(case: str) -> None:
    name, change = CHANGES[case]
    shapes = shapes_of(1, 200) + shapes_of(1, 50, change, start=200)

    notices = notices_of(shapes)

    assert set(notices) == {name}
    assert 200 < notices[name].place <= 250


@pytest.mark.parametrize("factor", [0.01, 100])
def test_numbers_in_another_unit_are_drift_from_earlier_runs(factor: float) -> None:
    shapes = shapes_of(1, 100, put("price", lambda price: price * factor))

    assert set(notices_of(shapes, history_of(1))) == {"price"}


def test_a_lower_score_is_drift_if_no_field_drifted() -> None:
    worse = [shape_of(str(n), {"title": f"Thing {n}"}, 40 + n % 5) for n in range(60)]
    usual = profile_of([shape_of(str(n), {"title": f"Thing {n}"}, 85 + n % 9) for n in range(200)])

    notices = notices_of(worse, usual)

    assert list(notices) == ["@score"]
    assert "42" in notices["@score"].now
    assert "89" in notices["@score"].before


SCHEMA = {
    "required": ["title", "price"],
    "properties": {"price": {"type": "number", "maximum": 100}},
}
GOOD = {"title": "Lamp", "price": 5}


class Priced(BaseModel):
    price: float


def refused_by_rules(rules: Any, data: dict[str, Any]) -> str:
    """Return why a pipeline refuses data, in the words that it has today."""
    with pytest.raises(ValidationFailed) as misfit:
        Validate(rules)(draft(data))
    return str(misfit.value)


def unmapped() -> str:
    """Return the note on a field whose path finds nothing, as it is shown with the field."""
    (note,) = Map({"price": "x"})(draft(GOOD)).notes
    return f"{note.field}: {note.text}"


def refused_by_manifest(html: str) -> str:
    """Return why the required field `price` of a page was not read, in the words of today."""
    spec = FieldSpec.model_validate({"css": ".price", "type": "number", "required": True})
    page = Page("http://shop.test/1", 200, {"content-type": "text/html"}, html.encode())
    reading = read_fields(make_readers({"price": spec}, None), whole_page(page))
    assert reading.problem is not None
    return f"{page.url}: {reading.problem}"


def test_items_that_fail_on_a_field_count_as_drift_of_it() -> None:
    reason = refused_by_manifest("<p>nothing here</p>")
    failed = [shape_of_failure(str(n), reason) for n in range(100, 130)]

    notices = notices_of(shapes_of(1, 100) + failed)

    assert set(notices) == {"price"}
    assert (notices["price"].place <= 120, notices["price"].since) == (True, "100")


@pytest.mark.parametrize(
    "reason", [refused_by_rules(Priced, {"price": "x"}), unmapped(), "a; price: b"]
)
def test_a_reason_names_the_field_in_several_ways(reason: str) -> None:
    assert "price" in shape_of_failure("3", reason).cells


@pytest.mark.parametrize(
    "reason",
    [
        refused_by_rules(SCHEMA, {**GOOD, "price": 101}),
        refused_by_manifest("<p class=price>cheap</p>"),
        refused_by_rules(SCHEMA, {"title": "Lamp"}),
        refused_by_rules(SCHEMA, {"price": 101}),
    ],
)
def test_a_field_that_is_refused_is_reported_as_not_valid(reason: str) -> None:
    failed = [shape_of_failure(str(n), reason) for n in range(100, 140)]

    notices = notices_of(shapes_of(1, 100) + failed)

    assert "valid" in notices["price"].now


@pytest.mark.parametrize(("found", "fewest"), [(50, 100), (300, 100), (0, 19), (100, 100)])
def test_a_run_may_find_a_little_less_or_more(found: int, fewest: int) -> None:
    assert far_fewer(found, fewest) is None


def test_far_fewer_items_are_drift() -> None:
    difference = far_fewer(49, 100)

    assert difference is not None
    assert difference.field == "@items"
    assert "49" in difference.now
    assert "100" in difference.before


def test_a_forgotten_field_does_not_drift() -> None:
    history = history_of(1)
    history.forget({"seller", "price"})

    assessment = judge_run(shapes_of(2, 200, put("price", str)), history)

    assert (assessment.drift, assessment.warnings) == ((), ())


@pytest.mark.parametrize("reason", [None, "", "no table here"])
def test_a_reason_may_not_name_a_field(reason: str | None) -> None:
    assert shape_of_failure("3", reason).cells == {}


def test_failures_without_a_field_are_drift_of_validity() -> None:
    failed = [shape_of_failure(str(n), "KeyError: 'no table'") for n in range(100, 130)]

    notices = notices_of(shapes_of(1, 100) + failed)

    assert list(notices) == ["@valid"]
    assert "@valid" not in str(notices["@valid"])  # it has a name for people


def test_a_list_sorted_by_price_is_not_drift() -> None:
    shapes = [shape_of(str(n), {"price": float(n), "text": "x" * (n // 4)}) for n in range(400)]

    assert notices_of(shapes) == {}


def test_growing_ids_are_not_drift() -> None:
    earlier = profile_of([shape_of(str(n), {"id": n}) for n in range(200)])

    assert notices_of([shape_of(str(n), {"id": n}) for n in range(9000, 9100)], earlier) == {}


def flats_and_garages() -> list[Shape]:
    """Return a list of which the second half never has bedrooms."""
    return [
        shape_of(str(n), {"title": f"t{n}", "bedrooms": 2 + n % 3 if n < 200 else None})
        for n in range(400)
    ]


def test_what_part_of_an_earlier_run_showed_is_not_drift() -> None:
    assessment = judge_run(flats_and_garages(), profile_of(flats_and_garages()))

    assert (assessment.drift, assessment.warnings) == ((), ())


def test_each_site_has_its_own_baseline() -> None:
    sites = [
        shape_of(str(n), {"title": f"t{n}", "price": 5 if n < 200 else None}, site=f"s{n // 200}")
        for n in range(400)
    ]

    assert notices_of(sites) == {}


def test_a_field_is_noticed_once_without_its_parts() -> None:
    shapes = shapes_of(1, 100) + shapes_of(1, 200, without("seller"), start=100)

    assert set(notices_of(shapes)) == {"seller"}


def test_a_noticed_field_is_not_noticed_again() -> None:
    detector = DriftDetector(noticed=["price"])
    shapes = shapes_of(1, 100) + shapes_of(1, 50, without("price"), start=100)

    assert [one for n, shape in enumerate(shapes, 1) for one in detector.add(shape, n)] == []


def test_an_emptied_column_of_a_short_run_is_drift() -> None:
    assessment = judge_run(shapes_of(1, 8, without("title")), history_of(1))

    assert [one.field for one in assessment.drift] == ["title"]


def test_an_empty_column_without_history_is_a_warning() -> None:
    assessment = judge_run(shapes_of(1, 120, without("price")), None)

    assert assessment.drift == ()
    assert assessment.empty == ("price",)
    (warning,) = assessment.warnings
    assert "price" in warning
    assert "120" in warning


def test_a_column_that_was_empty_before_is_not_warned_of() -> None:
    shapes = shapes_of(1, 120, without("price"))

    assessment = judge_run(shapes, None, known_empty={"price"})

    assert (assessment.warnings, assessment.empty) == ((), ("price",))


def test_a_column_that_is_seldom_filled_may_be_empty_in_a_short_run() -> None:
    assessment = judge_run(shapes_of(1, 20, without("reserve")), history_of(1))

    assert assessment.warnings == ()


def test_a_word_in_a_failure_reason_is_not_an_empty_column() -> None:
    shapes = [*shapes_of(1, 200), shape_of_failure("x", "KeyError: 'no table'")]

    assert judge_run(shapes, None).warnings == ()


def test_a_declared_field_without_values_is_a_warning() -> None:
    rows: list[dict[str, Any]] = [{"title": f"t{n}"} for n in range(20)]
    shapes = [shape_of(str(n), row) for n, row in enumerate(rows)]

    assessment = judge_run(shapes, None, declared=["title", "price"])

    assert assessment.empty == ("price",)
    (warning,) = assessment.warnings
    assert "price" in warning
    assert "20" in warning


def test_an_accepted_empty_column_is_not_warned_of() -> None:
    history = profile_of(shapes_of(2, 100, without("price")))
    history.quiet = {"price"}

    assessment = judge_run(shapes_of(1, 100, without("price")), history)

    assert assessment.warnings == ()
    assert assessment.profile.quiet == {"price"}


def test_a_new_field_is_a_warning() -> None:
    history = history_of(1)

    assessment = judge_run(shapes_of(2, 60, lambda data: {**data, "phone": "1"}), history)

    assert assessment.drift == ()
    (warning,) = assessment.warnings
    assert "phone" in warning
    assert "100%" in warning


def test_a_name_with_a_dot_may_be_a_field_of_its_own() -> None:
    flat = [shape_of(f"{n}", {"price": "5 EUR", "price.amount": n}) for n in range(60)]
    history = profile_of(flat)

    gone = judge_run([shape_of(f"{n}", {"price": "5 EUR"}) for n in range(60)], history)

    assert (history.seen("price.amount"), history.share("price.amount")) == (60, 1.0)
    assert judge_run(flat, history).drift == ()
    assert [one.field for one in gone.drift] == ["price.amount"]


def test_a_nested_field_is_counted_among_its_objects() -> None:
    shapes = [
        shape_of(f"{n}", {"price": {"amount": n} if n % 2 else "on request"}) for n in range(60)
    ]

    history = profile_of(shapes)

    assert (history.seen("price.amount"), history.share("price.amount")) == (30, 1.0)


def test_counts_are_clamped_to_their_range() -> None:
    assert chance_of_fewer(5, 0, 0, 60) == 1.0
    assert chance_of_fewer(70, 60, 60, 50) == chance_of_fewer(60, 60, 50, 50)


def quotes(count: int) -> list[Shape]:
    return [
        shape_of(
            f"q{n}", {"text": f"Quote {n} " + "x" * (n % 30), "author": f"A{n}", "tags": ["a"]}
        )
        for n in range(count)
    ]


def authors(count: int) -> list[Shape]:
    return [
        shape_of(f"a{n}", {"name": f"A{n}", "born": f"19{n % 90 + 10}", "bio": "b" * (20 + n % 40)})
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [90, 300])
def test_two_kinds_of_records_in_a_first_run_are_not_drift(count: int) -> None:
    assert not judge_run([*quotes(count), *authors(count)], None).drift
    assert not notices_of([*authors(count), *quotes(count)])


@pytest.mark.parametrize("second", [20, 100, 400])
def test_two_kinds_of_records_in_later_runs_are_not_drift(second: int) -> None:
    history = profile_of([*quotes(200), *authors(100)])

    assert not judge_run([*authors(100), *quotes(second)], history).drift
    mixed = [one for pair in zip(quotes(100), authors(100), strict=True) for one in pair]
    assert not judge_run(mixed, history).drift
    assert not judge_run([*quotes(200), *authors(100)], profile_of(mixed)).drift


def test_kinds_of_records_may_share_fields() -> None:
    books = [
        shape_of(f"b{n}", {"url": f"/b/{n}", "title": f"T{n}", "price": n}) for n in range(120)
    ]
    reviews = [
        shape_of(f"r{n}", {"url": f"/r/{n}", "title": f"T{n}", "stars": 4}) for n in range(99)
    ]

    assert not judge_run([*books, *reviews], None).drift


def test_a_field_that_vanishes_from_one_of_two_kinds_is_noticed() -> None:
    broken = [shape_of(f"q{n}", {"author": f"A{n}", "tags": ["a"]}) for n in range(300, 360)]

    assert "text" in notices_of([*quotes(200), *authors(200), *broken])
    assert judge_run(
        [*authors(200), *(shape_of(f"q{n}", {"author": "A", "tags": ["a"]}) for n in range(200))],
        profile_of([*quotes(200), *authors(200)]),
    ).drift


def test_records_that_lose_most_of_their_fields_are_not_another_kind() -> None:
    rest = [shape_of(f"q{n}", {"tags": ["a"]}) for n in range(60)]

    assert {"text", "author"} <= notices_of([*quotes(200), *rest]).keys()


Row = Callable[[int], dict[str, Any]]


def shapes_from(row: Row, count: int = 137, key: str = "item-{}") -> list[Shape]:
    return [shape_of(key.format(n), row(n)) for n in range(count)]


def tag_pages(n: int) -> dict[str, Any]:
    return {"url": f"https://quotes.test/tag/{n}", "title": "Quotes to Scrape", "text": f"t{n}"}


def test_one_title_for_all_records_is_suspicious() -> None:
    assert len(find_uniformity(shapes_from(tag_pages))) == 1


def test_one_title_for_nearly_all_records_is_suspicious() -> None:
    mixed = shapes_from(lambda n: {**tag_pages(n), "title": "Quotes" if n % 50 else f"t{n}"})

    assert len(find_uniformity(mixed)) == 1


@pytest.mark.parametrize("constant", [("brand", "about"), ("intro", "about"), ("name", "about")])
def test_records_that_differ_only_in_their_address_are_suspicious(
    constant: tuple[str, ...],
) -> None:
    same = dict.fromkeys(constant, "The same for all")
    found = find_uniformity(
        shapes_from(lambda n: {"url": f"/p/{n}", "id": n, "text": "Welcome", **same})
    )

    assert len(found) == 1


@pytest.mark.parametrize("key", ["tag/t{}", "https://q.test/category/c{}/", "tag/t{}/page/1"])
def test_keys_of_categories_are_suspicious(key: str) -> None:
    assert len(find_uniformity(shapes_from(lambda n: {"title": f"t{n}"}, key=key))) == 1


@pytest.mark.parametrize("key", ["category/shoes/shoe-{}", "{}", "author/a{}", "books/tagged-{}"])
def test_keys_of_items_are_not(key: str) -> None:
    assert find_uniformity(shapes_from(lambda n: {"title": f"t{n}"}, key=key)) == []


@pytest.mark.parametrize(
    "row",
    [
        lambda n: {"title": f"t{n}", "currency": "EUR", "language": "de", "source": "shop"},
        lambda n: {"name": "EUR/USD", "date": f"2026-01-{n}", "rate": 1.1, "unit": "USD"},
        lambda n: {"title": "Mr", "name": f"n{n}"},
        lambda n: {"page_title": "Shop", "title": f"t{n}"},
        lambda n: {"url": f"/p/{n}", "status": "200", "content_type": "text/html"},
        lambda n: {"url": f"/p/{n}", "text": "in stock", "price": n, "about": "same"},
        lambda n: {"url": f"/p/{n}", "text": "a", "about": "b", "tags": ["x"] * (n % 5)},
        lambda n: {"url": f"/p/{n}", "text": "a", "about": "b", "seller": {"city": f"c{n}"}},
        lambda n: {"title": None, "url": f"/p/{n}"},
        lambda _: {},
        lambda n: {"title": "Untitled" if n % 2 else f"t{n}"},
    ],
)
def test_fields_that_are_naturally_constant_are_not_suspicious(row: Row) -> None:
    assert find_uniformity(shapes_from(row)) == []


def test_a_few_records_may_be_alike() -> None:
    assert find_uniformity(shapes_from(tag_pages, count=9)) == []


def test_uniform_records_are_a_warning_not_drift() -> None:
    assessment = judge_run(shapes_from(tag_pages), None)

    assert (assessment.drift, len(assessment.alike)) == ((), 1)
    assert assessment.alike[0] in assessment.warnings


def test_accepted_uniformity_is_not_warned_of_again() -> None:
    assessment = judge_run(shapes_from(tag_pages), Profile(quiet={ALIKE}))

    assert (assessment.alike, assessment.warnings) == ((), ())
    assert ALIKE in assessment.profile.quiet
