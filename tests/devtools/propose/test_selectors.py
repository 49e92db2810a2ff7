"""Which names are taken into selectors, and what is read out of values."""

from __future__ import annotations

import pytest
from selectolax.lexbor import LexborHTMLParser

from longline.devtools.propose.pagination import find_pages
from longline.devtools.propose.places import field_name, kind_of, source_name
from longline.devtools.propose.selectors import group_selector, is_stable, unique_selector
from longline.http.messages import Page


@pytest.mark.parametrize(
    "name", ["price", "card__price", "product-title", "row", "no", "BookTitle", "js_link"]
)
def test_a_name_that_a_person_chose_is_stable(name: str) -> None:
    assert is_stable(name)


@pytest.mark.parametrize(
    "name",
    [
        *("css-1x9k2", "sc-bdVaJa", "jsx-3915", "item-482", "a1b2c3d4", "styles_card__3xQ9z"),
        *("md:flex", "w-1/2", "x" * 50, "1st", "grid__xkcdq"),
    ],
)
def test_a_name_that_a_build_made_is_not(name: str) -> None:
    assert not is_stable(name)


def test_a_selector_is_as_short_as_it_can_be() -> None:
    tree = LexborHTMLParser(
        '<main><p class="css-1x9k2 price">5</p><div class="box"><b>a</b></div><b>b</b></main>'
    )

    assert unique_selector(tree, tree.css("p")[0]) == "p.price"
    assert unique_selector(tree, tree.css("b")[0]) == "div.box b"
    assert unique_selector(tree, tree.css("b")[1]) is None


def test_elements_are_found_together_and_no_others() -> None:
    tree = LexborHTMLParser(
        '<ul class="menu"><li>1</li><li>2</li></ul><ul class="list"><li>3</li><li>4</li></ul>'
    )

    assert group_selector(tree, tree.css("ul.list li")) == "ul.list > li"


@pytest.mark.parametrize(
    ("values", "locale", "kind"),
    [
        (["1.234,50 €", "5,00 €"], "de", "money"),
        (["3. März 2026", "4. April 2026"], "de", "date"),
        (["2026-03-01T10:00:00Z"], None, "datetime"),
        (["12", "7"], "en", "integer"),
        (["1,5", "2,75"], "de", "number"),
        (["1,5", "unknown"], "de", None),
        (["01/02/2026"], "en", None),
        (["2026"], "en", "integer"),
        (["Oslo"], "en", None),
    ],
)
def test_a_type_is_chosen_only_if_all_values_can_be_read(
    values: list[str], locale: str | None, kind: str | None
) -> None:
    assert kind_of("field", values, locale) == kind


def test_a_code_of_digits_stays_text() -> None:
    assert kind_of("sku", ["4711"], "en") is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("datePublished", "date_published"),
        ("Preis (netto):", "preis_netto"),
        ("7 days", "field_7_days"),
    ],
)
def test_labels_become_names_of_fields(text: str, name: str) -> None:
    assert field_name(text) == name


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://www.books.example/new/", "books-new"),
        ("http://127.0.0.1:80/generated/3/", "site-generated-3"),
        ("https://24.example/", "site-24"),
    ],
)
def test_addresses_become_names_of_sources(url: str, name: str) -> None:
    assert source_name(url) == name


@pytest.mark.parametrize(
    ("html", "pages"),
    [
        ('<a rel="next" href="/l?p=2">»</a>', {"kind": "next", "css": "a[rel~=next]@href"}),
        ('<a class="next" href="/l?p=2">More</a>', {"kind": "next", "css": "a.next@href"}),
        (
            '<li class="next"><a href="/l?p=2">Next</a></li>',
            {"kind": "next", "css": "li.next a@href"},
        ),
        (
            '<div class="pager"><a href="/l?p=2">Next</a></div>',
            {"kind": "next", "css": 'a:lexbor-contains("Next")@href'},
        ),
        (
            '<a href="/l?p=2">Следваща страница</a>',
            {"kind": "next", "css": 'a:lexbor-contains("Следваща страница")@href'},
        ),
        (
            '<a class="n" href="/l?p=2">2</a><a class="n" href="/l?p=3">3</a>',
            {"kind": "numbered", "param": "p", "last": "a.n"},
        ),
        ('<a href="/l?from=10">2</a>', {"kind": "offset", "param": "from", "size": 10}),
        ('<a href="/l?p=1">2</a>', {"kind": "numbered", "param": "p", "first": 0, "last": "a"}),
        (
            '<a href="/l/page/2">2</a>',
            {"kind": "numbered", "url": "{start}/page/{page}", "last": "a"},
        ),
        (
            '<button data-url="/more?p=2">Load more</button>',
            {"kind": "more", "url": "http://x.test/more?p={page}"},
        ),
        ("<a href='/2'>Two</a>", None),
    ],
)
def test_the_pagination_of_a_list_is_found(html: str, pages: dict[str, object] | None) -> None:
    page = Page("http://x.test/l", 200, {}, f"<body>{html}</body>".encode())

    assert find_pages(page, 10) == pages
