"""Drafts as the tests of stages begin with them, and scores of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from longline.core.model import Note, Quality
from longline.pipeline.quality import score
from longline.pipeline.stages import Draft
from longline.sources.base import Source

URL = "https://shop.test/7"


def draft(data: dict[str, Any], *notes: Note, **provenance: str) -> Draft:
    return Draft("7", URL, "shop", data, notes, provenance)


def score_of(
    source: Source, data: Mapping[str, Any], ends: Mapping[str, str], notes: Iterable[Note] = ()
) -> Quality:
    names = [layer.name for layer in source.layers()]
    return score(source.quality_rules, names, data, ends, notes)
