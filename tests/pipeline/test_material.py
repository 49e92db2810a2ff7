"""What a quarantined item was made of, read from its row."""

from __future__ import annotations

from typing import Any

import pytest

from longline.pipeline.material import unpack_material


def test_rows_of_older_versions_are_read() -> None:
    material = unpack_material({"page": {"title": "Flat"}, "format": {"of": "paper"}})

    assert material.results == {"page": {"title": "Flat"}, "format": {"of": "paper"}}
    assert material.layers == {"page": "ok", "format": "ok"}


@pytest.mark.parametrize("raw", [None, [], "x", {}])
def test_a_row_without_material_has_none(raw: Any) -> None:
    assert unpack_material(raw).results == {}
