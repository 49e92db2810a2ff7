# Pins wording on purpose.
"""One message of each family that sources write, word for word."""

from __future__ import annotations

import pytest

from longline.core.json import to_json
from longline.sources.parsing.values import read_value
from tests.sources.manifested import read
from tests.sources.scripted import notes_on
from tests.virtual import VirtualClock


@pytest.mark.parametrize(
    ("field", "note"),
    [
        ("[.price, .old]", "nothing at css .price, css .old"),
        (
            "{css: h1, type: number}",
            "'Cod' cannot be read as number: there is no number in it",
        ),
    ],
)
async def test_a_note_says_why_a_field_is_empty(field: str, note: str, clock: VirtualClock) -> None:
    _, visit = await read(f"fields: {{price: {field}}}", "<h1>Cod</h1>", clock)

    assert notes_on(visit, "price") == [note]


def test_an_ambiguous_date_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match=r"^day and month may be either way round; say locale"):
        read_value("date", "01/05/2024")


def test_a_field_that_is_not_data_is_refused_with_its_type() -> None:
    with pytest.raises(TypeError, match=r"^field o is of type object, which is not data; return "):
        to_json({"o": object()})
