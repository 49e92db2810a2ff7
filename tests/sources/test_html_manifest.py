"""Schema of HTML manifests: each mistake is reported before the first request."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from longline.core.errors import BadOption
from longline.sources.api.manifest import ApiManifest
from longline.sources.api.source import api_source
from longline.sources.html.manifest import HtmlManifest
from tests.config.messages import absent
from tests.sources.manifested import source_of

WHOLE = """
manifest: html
name: shop
version: "3"
about: Everything in the shop.
parameters:
  base_url: https://shop.test
  last: {type: integer, default: 3, about: The last category.}
rate: auto
burst: 2
headers: {Accept-Language: en}
cache: true
expects: [main]
volatile: [price]
start:
  - "{base_url}/new"
  - {url: "{base_url}/c/{n}/{kind}", each: {n: {from: 1, to: "{last}"}, kind: [a, b]}}
follow: {links: nav a, match: /c/, depth: 2}
pages: {kind: numbered, url: "{start}?page={page}", last: .pages a}
items: {elements: article, link: h3 a, fields: {rank: .rank}}
key: {url: "/p/(.+)"}
locale: de
fields:
  title: h1
  price: {css: [.price, .old], type: money, required: true}
  tags: {css: .tag, many: true}
  maker: {json_ld: Product.brand.name}
  offers: {css: tr, many: true, fields: {seller: td}}
"""


def checked(text: str, **more: Any) -> HtmlManifest:
    values = {
        "name": "shop",
        "fields": {"title": "h1"},
        **(yaml.safe_load(dedent(text)) or {}),
        **more,
    }
    return HtmlManifest.model_validate(values)


def problem_of(text: str) -> tuple[str, str]:
    """Return where the first problem is, and its message."""
    with pytest.raises(ValidationError) as caught:
        checked(text)
    first = caught.value.errors()[0]
    return ".".join(str(part) for part in first["loc"]), first["msg"]


def test_a_manifest_says_all_of_a_source() -> None:
    manifest = HtmlManifest.model_validate(yaml.safe_load(WHOLE))

    addresses = list(manifest.start[1].urls({"base_url": "https://shop.test", "last": 2}))
    assert addresses == [f"https://shop.test/c/{n}/{kind}" for n in (1, 2) for kind in "ab"]
    assert [place.css for place in manifest.fields["price"].places] == [(".price", ".old")]


def test_what_was_checked_can_be_written_down_and_checked_again() -> None:
    manifest = HtmlManifest.model_validate(yaml.safe_load(WHOLE))

    again = HtmlManifest.model_validate(
        manifest.model_dump(mode="json", by_alias=True, exclude_unset=True)
    )

    assert again == manifest


def test_short_forms_equal_the_long_ones() -> None:
    short = checked(
        "{start: https://a.test, items: h3 a, pages: a.next, follow: nav a, key: '@id'}"
    )
    full = checked("""
        start: [{url: https://a.test}]
        items: {links: [h3 a]}
        pages: {kind: next, css: [a.next]}
        follow: [{links: [nav a]}]
        key: {css: ['@id']}
        fields: {title: {css: [h1]}}
    """)

    assert short == full


@pytest.mark.parametrize(
    ("text", "where", "data"),
    [
        ("{}", "", "start"),
        ("start: shop.test", "start.0.url", "http:// https://"),
        ("start: 'https://a.test/{x}'", "", "{x} start"),
        (
            "start: {url: 'https://a.test', each: {n: [1]}}",
            "start.0",
            "{n}",
        ),
        (
            "start: {url: 'https://a.test/{n}', each: {n: {from: 3, to: 1}}}",
            "start.0.each.n.range",
            "3 1",
        ),
        ("start: {url: 'https://a.test/{n}', each: {n: 5}}", "start.0.each.n", ""),
        ("{start: https://a.test, pages: a.next}", "", "pages items"),
        ("{start: https://a.test, items: 'h3 a['}", "items.links.0", "CSS"),
        (
            "{start: https://a.test, items: {}}",
            "items",
            "links elements records sitemap match",
        ),
        (
            "{start: https://a.test, items: {links: a, elements: p}}",
            "items",
            "links elements",
        ),
        ("{start: https://a.test, items: {match: '('}}", "items.match", "'('"),
        ("{start: https://a.test, items: {links: a, link: b}}", "items", "elements"),
        (
            "{start: https://a.test, items: {sitemap: true}, pages: a.next}",
            "",
            "sitemap follow pages",
        ),
        ("{start: https://a.test, items: a, pages: {kind: scroll}}", "pages", "next numbered"),
        (
            "{start: https://a.test, items: a, pages: {kind: numbered, url: 'https://a.test'}}",
            "pages.numbered",
            "{page}",
        ),
        (
            "{start: https://a.test, items: a, pages: {kind: numbered, url: '{x}{page}'}}",
            "",
            "{x} pages.url",
        ),
        (
            "{start: https://a.test, items: a, pages: {kind: numbered, until: last}}",
            "pages.numbered",
            "last",
        ),
        (
            "{start: https://a.test, items: a, pages: {kind: offset}}",
            "pages.offset.size",
            "required",
        ),
        (
            "{start: https://a.test, items: a, pages: {kind: more, url: 'https://a.test/m'}}",
            "pages.more",
            "{page} {offset} {cursor}",
        ),
        (
            "{start: https://a.test, items: a, pages: {kind: more, url: '{start}?c={cursor}'}}",
            "pages.more",
            "{cursor} path",
        ),
        (
            "{start: https://a.test, items: a, pages: {kind: more, url: '{page}', records: x}}",
            "",
            "items elements",
        ),
        ("{start: https://a.test, volatile: [views]}", "", "views volatile"),
        ("{start: https://a.test, expects: ['p[']}", "expects", "CSS"),
        ("{start: https://a.test, key: h1}", "", "key: {url: /p/(.+)}"),
        ("{start: https://a.test, fields: {}}", "fields", ""),
        ("{start: https://a.test, fields: {a: 5}}", "fields.a", "css"),
        ("{start: https://a.test, fields: {1: h1}}", "fields", ""),
        ("{start: https://a.test, fields: {a: ''}}", "fields.a.css.0", "CSS"),
        ("{start: https://a.test, fields: {a: {type: number}}}", "fields.a", "css json_ld"),
        ("{start: https://a.test, fields: {a: {css: p, type: price}}}", "fields.a.type", "'money'"),
        ("{start: https://a.test, fields: {a: {css: p, typ: text}}}", "fields.a", "'typ' type"),
        ("{start: https://a.test, fields: {a: {css: p, locale: xx}}}", "fields.a.locale", "locale"),
        ("{start: https://a.test, fields: {a: {json_ld: .price}}}", "fields.a", "type: Product"),
        (
            "{start: https://a.test, fields: {a: {script: p, path: 'a['}}}",
            "fields.a.path",
            "jmespath",
        ),
        (
            "{start: https://a.test, fields: {a: {path: b}}}",
            "",
            "script json_ld microdata",
        ),
        (
            "{start: https://a.test, fields: {a: {css: p, required: true, default: 1}}}",
            "fields.a",
            "required default",
        ),
        (
            "{start: https://a.test, fields: {a: {css: p, fields: {b: 'c['}}}}",
            "fields.a.fields.b.css.0",
            "CSS",
        ),
        (
            "{start: https://a.test, fields: {a: {url: x, fields: {b: p}}}}",
            "fields.a",
            "element",
        ),
        (
            "{start: https://a.test, items: {elements: p, link: a, fields: {title: b}}}",
            "",
            "title fields items.fields",
        ),
    ],
)
def test_what_is_wrong_is_reported_with_what_would_be_right(
    text: str, where: str, data: str
) -> None:
    place, problem = problem_of(text)

    assert place == where
    assert absent(problem, data) == []


def test_a_manifest_has_a_schema_for_editors() -> None:
    schema = HtmlManifest.model_json_schema(by_alias=True)

    assert {"start", "items", "pages", "follow", "fields"} <= schema["properties"].keys()


def test_ranges_of_parameters_are_counted_when_they_are_known() -> None:
    manifest = HtmlManifest.model_validate(yaml.safe_load(WHOLE))

    with pytest.raises(ValueError, match="1,000,000"):
        next(manifest.start[1].urls({"base_url": "https://shop.test", "last": 2_000_000}))


PROBLEMS = [
    ("https://me:pw@shop.test", "user|password"),
    ("https://shop.test:99999", "port"),
    ("http://[::1", r"\[::1"),
    ("shop.test", "http://.*https://"),
]


@pytest.mark.parametrize(("address", "problem"), PROBLEMS)
def test_an_invalid_start_url_is_refused(address: str, problem: str) -> None:
    text = """
        parameters: {site: {type: text}}
        start: "{site}/list"
        fields: {title: h1}
        """
    kind = type(source_of(text, site="https://shop.test"))

    with pytest.raises(BadOption, match=problem) as raised:
        kind.with_options({"site": address})

    assert "pw" not in str(raised.value)


@pytest.mark.parametrize(("address", "problem"), PROBLEMS)
def test_an_invalid_base_url_is_refused(address: str, problem: str) -> None:
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
