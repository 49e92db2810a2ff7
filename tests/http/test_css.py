"""Selectors: the same elements as the engine finds, without its worst cases."""

from __future__ import annotations

import random

import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.core.errors import UnexpectedShape
from longline.http.css import Selectors

_TAGS = ("div", "span", "section", "i")
_PARTS = (*_TAGS, ".p", ".q", ".r", "*", "div.p")


def nested(seed: random.Random, depth: int) -> str:
    if depth <= 0:
        return "x"
    return "".join(
        f"<{tag} class={seed.choice('pqr')}>{nested(seed, depth - 1)}</{tag}>"
        for tag in seed.choices(_TAGS, k=seed.randrange(1, 3))
    )


def selector(seed: random.Random) -> str:
    text = seed.choice(_PARTS)
    for _ in range(seed.randrange(2, 5)):
        text += seed.choice((" ", " ", " ", " > ", " + ")) + seed.choice(_PARTS)
    return text


@pytest.mark.parametrize("number", range(60))
def test_selectors_that_are_taken_apart_find_the_same(number: int) -> None:
    seed = random.Random(number)
    deep = "<section class=p>" * 20 + nested(seed, 5)  # not shallow, and not too deep to compare
    tree = LexborHTMLParser(deep)
    css = ", ".join(selector(seed) for _ in range(seed.randrange(1, 3)))
    roots: list[LexborHTMLParser | LexborNode] = [tree, *seed.sample(tree.css("*"), 3)]

    found = [[one.mem_id for one in Selectors(tree).all(root, css)] for root in roots]

    assert found == [[one.mem_id for one in root.css(css)] for root in roots]


@pytest.mark.parametrize(
    "css", [".nope div div p", ".nope div div div div p", "div div div p", ".a > div div > div p"]
)
def test_descendants_on_nested_elements_take_no_time(css: str) -> None:
    tree = LexborHTMLParser("<div>" * 900 + "<p>x</p>" * 500)

    found = Selectors(tree).all(tree, css)

    assert len(found) == (500 if css == "div div div p" else 0)


@pytest.mark.parametrize("css", ["p:nth-child(2)", "p:nth-last-of-type(2)", "b ~ p", "b ~ p ~ p"])
def test_counting_very_many_siblings_is_refused(css: str) -> None:
    tree = LexborHTMLParser("<p>x</p>" * 30_000)

    with pytest.raises(UnexpectedShape):
        Selectors(tree).first(tree, css)


@pytest.mark.parametrize("css", ["p:nth-child(2)", "p ~ b", "p[class~=x]:nth-child(2)"])
def test_counting_some_siblings_is_done_by_the_engine(css: str) -> None:
    tree = LexborHTMLParser("<p class=x>x</p>" * 500)

    assert len(Selectors(tree).all(tree, css)) == len(tree.css(css))


@pytest.mark.parametrize("css", ["p:not(.a div div)", "div:has(div:has(.nope))"])
def test_spaces_in_parentheses_are_refused_on_nested_elements(css: str) -> None:
    tree = LexborHTMLParser("<div>" * 300 + "<p>x")

    with pytest.raises(UnexpectedShape):
        Selectors(tree).all(tree, css)
