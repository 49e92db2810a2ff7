# Pins wording on purpose.
"""The words of messages about items, where the choice of a word depends on the data."""

from __future__ import annotations

import pytest

from longline.engine.extractor import NoFields


@pytest.mark.parametrize(
    ("kind", "words"), [("list", "a list"), ("int", "an int"), ("NoneType", "nothing")]
)
def test_the_type_a_layer_returned_has_its_article(kind: str, words: str) -> None:
    assert f" {words}, " in str(NoFields("page", kind))
