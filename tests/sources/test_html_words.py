"""Words of a field: what each text of a page stands for."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.sources.manifested import manifest_of, read
from tests.sources.scripted import notes_on
from tests.virtual import VirtualClock

PAGE = "<h1>Продава  Двустаен апартамент</h1><p>Prefabricated  PANELS</p><i>1</i><i>?</i>"


async def test_a_word_becomes_what_it_stands_for_in_any_case(clock: VirtualClock) -> None:
    text = """
        fields:
          rooms: {css: h1, match: 'Продава (\\w+)', words: {едностаен: 1, двустаен: 2}}
          kind: {css: p, words: {prefabricated panels: panel}}
    """

    data, visit = await read(text, PAGE, clock)

    assert data == {"rooms": 2, "kind": "panel"}
    assert visit.notes == []


async def test_a_word_that_is_not_explained_is_empty_with_a_note(clock: VirtualClock) -> None:
    data, visit = await read("fields: {kind: {css: p, words: {brick: b}}}", PAGE, clock)

    assert data == {"kind": None}
    (note,) = notes_on(visit, "kind")
    assert "PANELS" in note


async def test_of_many_words_the_unexplained_ones_are_left_out(clock: VirtualClock) -> None:
    data, visit = await read("fields: {all: {css: i, many: true, words: {'1': one}}}", PAGE, clock)

    assert data == {"all": ["one"]}
    assert len(notes_on(visit, "all")) == 1


@pytest.mark.parametrize(
    "field", ["{css: p, words: {a: 1}, type: integer}", "{fields: {x: p}, words: {a: 1}}"]
)
def test_words_and_a_type_or_fields_do_not_go_together(field: str) -> None:
    with pytest.raises(ValidationError, match="words"):
        manifest_of(f"fields: {{one: {field}}}\nstart: https://shop.test/")
