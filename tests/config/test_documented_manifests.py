"""What the documentation shows as a manifest is one."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from longline.config.documents import parse_document
from longline.sources.manifest import parse_manifest

PAGE = Path(__file__).parents[2] / "docs" / "sources.md"
BLOCKS = [
    textwrap.dedent(block)
    for block in re.findall(
        r"^ *```yaml\n(.*?)^ *```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
]
MANIFESTS = [block for block in BLOCKS if block.startswith("manifest:")]


@pytest.mark.parametrize("text", MANIFESTS)
def test_a_manifest_in_the_documentation_is_right(text: str) -> None:
    manifest = parse_manifest(parse_document(text.encode(), PAGE))

    assert manifest.name


def test_every_kind_is_shown() -> None:
    kinds = {block.split("\n", 1)[0] for block in MANIFESTS}

    assert kinds == {"manifest: html", "manifest: api", "manifest: command"}
