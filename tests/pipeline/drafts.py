"""Drafts as the tests of stages begin with them."""

from __future__ import annotations

from typing import Any

from longline.core.model import Note
from longline.pipeline.stages import Draft

URL = "https://shop.test/7"


def draft(data: dict[str, Any], *notes: Note, **provenance: str) -> Draft:
    return Draft("7", URL, "shop", data, notes, provenance)
