"""Lists of an API in which a key comes again, and lists with nothing in them."""

from __future__ import annotations

import pytest

from longline.core.errors import DiscoveryFailed
from tests.sources.api_bench import ApiSite, Bench


def listing(more: str = "") -> str:
    return f"""
endpoints:
  products:
    path: /products
    records: items
    key: id
    {more}
"""


async def test_a_key_of_different_records_on_different_pages_is_noted_once(
    api: ApiSite, bench: Bench
) -> None:
    pages = [[{"id": 1, "size": size}, {"id": n}] for n, size in enumerate("smlx", 2)]
    api.says("/products", lambda query, _: {"items": [*pages, []][int(query["page"]) - 1]})

    items = await bench.find(listing("pagination: {kind: page}"))

    assert len({item.key for item in items}) == 5
    (note,) = bench.notes
    assert note.startswith("products: ")
    assert "key" in note
    assert "pages" in note


async def test_a_record_that_comes_again_as_it_was_is_not_noted(api: ApiSite, bench: Bench) -> None:
    pages = [[{"id": 1}, {"id": 2}], [{"id": 2}, {"id": 3}], []]
    api.says("/products", lambda query, _: {"items": pages[int(query["page"]) - 1]})

    await bench.find(listing("pagination: {kind: page}"))

    assert bench.notes == []


async def test_a_list_without_a_record_is_a_failure(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": []})

    with pytest.raises(DiscoveryFailed, match="may_be_empty"):
        await bench.find(listing())


async def test_a_list_that_may_be_empty_is_fine(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": []})

    assert await bench.find(f"may_be_empty: true\n{listing()}") == []
