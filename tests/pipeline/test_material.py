"""What a quarantined item was made of, read from its row."""

from __future__ import annotations

from typing import Any

import pytest

from longline.pipeline.material import unpack_material


@pytest.mark.parametrize("raw", [None, [], "x", {}])
def test_a_row_without_material_has_none(raw: Any) -> None:
    assert unpack_material(raw).results == {}
