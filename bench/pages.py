"""The pages that every contestant collects: content, addresses and fields."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIZE_BYTES = 13_000


@dataclass(frozen=True, slots=True)
class Field:
    """The place of a field: the text of an element, or one of its attributes."""

    css: str
    attribute: str | None = None


FIELDS = {
    "title": Field("h1.title"),
    "sku": Field("main[data-sku]", "data-sku"),
    "price": Field("span.price"),
    "brand": Field("a.brand"),
    "rating": Field("meta[itemprop=ratingValue]", "content"),
    "stock": Field("b.stock"),
    "description": Field("div.description > p"),
}

_WORDS = (
    *("line", "hook", "float", "reel", "bait", "tide", "harbour", "net", "sail", "rope", "buoy"),
    *("anchor", "deck", "hull", "keel", "mast", "current", "swell", "shoal", "reef", "gull"),
    *("cod", "mackerel", "herring", "ray", "lantern", "compass", "chart"),
)


def addresses(base_url: str, count: int, *, first: int = 1) -> Iterator[tuple[str, str]]:
    """Yield the key and the address of each page."""
    for number in range(first, first + count):
        key = f"{number:05}"
        yield key, f"{base_url}/p/{key}.html"


def write_pages(folder: Path, count: int) -> None:
    """Write the pages to a folder that a server serves."""
    shelf = folder / "p"
    shelf.mkdir(parents=True)
    for number in range(1, count + 1):
        (shelf / f"{number:05}.html").write_text(_page(number), "utf-8")


def digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a hash of all fields of all rows, to compare contestants."""
    plain = sorted(
        [
            str(row["sku"]),
            str(row["title"]),
            f"{float(row['price']):.2f}",
            str(row["brand"]),
            f"{float(row['rating']):.1f}",
            str(int(row["stock"])),
            str(row["description"]),
        ]
        for row in rows
    )
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def _page(number: int) -> str:
    draw = random.Random(number)
    head = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Item {number} | The chandlery</title>
<meta name="description" content="{_sentence(draw)}"><link rel="stylesheet" href="/s.css"></head>
<body><nav><ul>{_links(draw, 20)}</ul></nav>
<main data-sku="SKU-{number:05}" itemscope itemtype="https://schema.org/Product">
<h1 class="title">Item {number}: {_sentence(draw, 4)}</h1>
<p>by <a class="brand" href="/brands/{number % 40}">Brand {number % 40}</a></p>
<p>Price <span class="price">{draw.randint(100, 99_999) / 100:.2f}</span></p>
<meta itemprop="ratingValue" content="{draw.randint(10, 50) / 10:.1f}">
<p><b class="stock">{draw.randint(0, 500)}</b> in stock</p>
<div class="description"><p>{_sentence(draw, 40)}</p></div>
<table><tbody>{_rows(draw)}</tbody></table></main><section class="reviews">
"""
    foot = f"</section><footer><ul>{_links(draw, 15)}</ul></footer></body></html>\n"
    return head + _reviews(draw, SIZE_BYTES - len(head) - len(foot)) + foot


def _sentence(draw: random.Random, words: int = 12) -> str:
    return " ".join(draw.choices(_WORDS, k=words)).capitalize()


def _links(draw: random.Random, count: int) -> str:
    return "".join(
        f'<li class="link"><a href="/c/{index}">{_sentence(draw, 2)}</a></li>'
        for index in range(count)
    )


def _rows(draw: random.Random) -> str:
    return "".join(
        f"<tr><th>{_sentence(draw, 1)}</th><td>{_sentence(draw, 3)}</td></tr>" for _ in range(20)
    )


def _reviews(draw: random.Random, size: int) -> str:
    text = ""
    while len(text) < size - 400:
        text += f'<article class="review"><h3>{_sentence(draw, 3)}</h3>'
        text += f'<p class="text">{_sentence(draw, 30)}</p></article>\n'
    return text + f"<!--{'.' * (size - len(text) - 7)}-->"
