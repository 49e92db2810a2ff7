"""Addresses that a user sets: what cannot work is told before there is a job."""

from __future__ import annotations

import pytest

from longline.core.errors import BadOption
from longline.sources.api.manifest import ApiManifest
from longline.sources.api.source import api_source
from tests.sources.manifested import source_of

PROBLEMS = [
    ("https://me:pw@shop.test", "user|password"),
    ("https://shop.test:99999", "port"),
    ("http://[::1", r"\[::1"),
    ("shop.test", "http://.*https://"),
]


@pytest.mark.parametrize(("address", "problem"), PROBLEMS)
def test_a_bad_start_address_is_refused(address: str, problem: str) -> None:
    text = """
        parameters: {site: {type: text}}
        start: "{site}/list"
        fields: {title: h1}
        """
    kind = type(source_of(text, site="https://shop.test"))

    with pytest.raises(BadOption, match=problem) as told:
        kind.with_options({"site": address})

    assert "pw" not in str(told.value)


@pytest.mark.parametrize(("address", "problem"), PROBLEMS)
def test_a_bad_base_address_is_refused(address: str, problem: str) -> None:
    manifest = ApiManifest.model_validate(
        {
            "name": "shop",
            "base_url": "{site}/v1",
            "parameters": {"site": {"type": "text"}},
            "endpoints": {"goods": {"key": "id"}},
        }
    )

    with pytest.raises(BadOption, match=problem):
        api_source(manifest).with_options({"site": address})
