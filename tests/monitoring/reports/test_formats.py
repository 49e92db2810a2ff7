"""Formats of reports: nothing in a text runs, loads or breaks the layout."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from longline.core.errors import BadOption
from longline.core.redaction import KNOWN_SECRETS
from longline.monitoring.reports.formats import ReportFormat, format_of_file, render
from longline.monitoring.reports.html import as_html
from longline.monitoring.reports.page import (
    Chart,
    Code,
    Facts,
    Level,
    Meter,
    Notes,
    ReportPage,
    ReportSection,
    ReportTable,
    Series,
    Shares,
    Strip,
    Tag,
    plain_line,
    share_of,
    span_of,
)
from longline.monitoring.reports.text import as_markdown, as_plain_text
from tests.hostile_data import ATTACK

MARKUP = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg onload=alert(1)>"
    "<style>*{display:none}</style></td></table></body><a href='javascript:alert(1)'>x</a>"
    "{{ 7*7 }}{% raw %}]]>--><!-- | cell | `code` **bold** [x](javascript:y) ![i](http://x.test)"
)
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\u200b\ufeff\U000e0041]"
)
texts = st.one_of(st.text(max_size=80), st.sampled_from([MARKUP, ATTACK, f"{MARKUP}\n{ATTACK}"]))


def page_of(text: str) -> ReportPage:
    """A page in which every text is the given one."""
    tag = Tag(text, Level.BAD)
    table = ReportTable(
        ("one", text, "n"),
        ((text, tag, "1"), (Code(text), Strip((tag, tag)), Meter(0.5))),
        numbers=frozenset({"n"}),
        wide=text,
    )
    chart = Chart(text, (text, text), (Series(text, Level.GOOD, (1.0, 2.0)),), text)
    shares = Shares(text, ((text, 3, Level.GOOD), (text, 1, Level.BAD)))
    blocks = (table, Facts(((text, text),)), Notes((text, text)), chart, shares)
    return ReportPage(text, text, Level.BAD, text, (ReportSection(text, blocks),))


@given(texts, st.booleans())
def test_html_has_only_our_elements(text: str, is_mail: bool) -> None:  # noqa: FBT001  # drawn
    html = as_html(page_of(text), is_mail=is_mail)
    expected = as_html(page_of("x" * len(plain_line(text))), is_mail=is_mail)

    tree, ours = LexborHTMLParser(html), LexborHTMLParser(expected)
    names = [node.tag for node in tree.css("*")]
    assert names == [node.tag for node in ours.css("*")]
    assert {"script", "img", "iframe", "a", "link", "object"}.isdisjoint(names)
    attributes = {name for node in tree.css("*") for name in node.attributes}
    assert not any(name.startswith("on") or name in {"href", "src"} for name in attributes)
    assert not UNSAFE.search(html)


@given(texts)
def test_html_shows_the_text_itself(text: str) -> None:
    tree = LexborHTMLParser(as_html(page_of(text)))

    cells = [one.text() for one in tree.css("td")]
    heading = tree.css_first("h1")
    assert heading is not None
    assert heading.text() == plain_line(text)
    assert cells[0] == plain_line(text)
    assert len(cells) == 6


@given(texts)
def test_markdown_has_only_our_markup(text: str) -> None:
    html = MarkdownIt("commonmark").enable("table").render(as_markdown(page_of(text)))

    tree = LexborHTMLParser(html)
    names = {node.tag for node in tree.css("body *")}
    allowed = {"h1", "h2", "p", "strong", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}
    assert names <= allowed
    assert [len(row.css("td, th")) for row in tree.css("tr")] == [3, 3, 3]


@given(texts)
def test_plain_text_cannot_control_a_terminal(text: str) -> None:
    written = as_plain_text(page_of(text))

    assert not UNSAFE.search(written.replace("\n", ""))


def test_a_column_without_a_heading_stays_in_the_table() -> None:
    table = ReportTable(("", "now"), (("runs", "2"), ("items", "94")))
    page = ReportPage("t", "s", Level.GOOD, "a", (ReportSection("Trends", (table,)),))

    lines = as_plain_text(page).splitlines()

    assert [line.split() for line in lines[-2:]] == [["runs", "2"], ["items", "94"]]


@given(texts)
def test_json_keeps_the_text(text: str) -> None:
    written = render(page_of(text), {"reason": text}, ReportFormat.JSON)

    assert json.loads(written)["reason"] == text.encode("utf-16", "surrogatepass").decode(
        "utf-16", "replace"
    )


def test_times_are_in_iso_8601() -> None:
    at = datetime(2026, 11, 18, 12, 0, 5, tzinfo=UTC).timestamp()

    written = render(page_of("x"), {"made_at": at, "n": 1.5}, ReportFormat.JSON)

    assert json.loads(written) == {"made_at": "2026-11-18T12:00:05+00:00", "n": 1.5}


def test_html_loads_nothing_and_forbids_scripts() -> None:
    html = as_html(page_of("x"))

    policy = LexborHTMLParser(html).css_first("meta[http-equiv]")
    assert policy is not None
    assert "default-src 'none'" in (policy.attributes["content"] or "")
    assert "http://" not in html
    assert "https://" not in html
    assert "url(" not in html


@pytest.mark.parametrize("wanted", ReportFormat)
def test_a_known_secret_is_in_no_format(wanted: ReportFormat) -> None:
    KNOWN_SECRETS.add("hunter2-and-more")

    written = render(page_of("it is hunter2-and-more"), {"a": "hunter2-and-more"}, wanted)

    assert "hunter2" not in written


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("a.html", "html"), ("b.MD", "markdown"), ("c.json", "json"), ("d.e.txt", "text")],
)
def test_the_suffix_of_a_file_selects_its_format(name: str, wanted: str) -> None:
    assert format_of_file(name) == wanted


def test_another_suffix_is_refused() -> None:
    with pytest.raises(BadOption):
        format_of_file("report.pdf")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0 s"), (9.34, "9.3 s"), (59.7, "1 min"), (185, "3 min 5 s"), (7800, "2 h 10 min")],
)
def test_durations_have_at_most_two_units(seconds: float, text: str) -> None:
    assert span_of(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"), [(1, "100%"), (0, "0%"), (0.9999, ">99.9%"), (0.0001, "<0.1%")]
)
def test_a_share_is_whole_only_if_it_is(share: float, text: str) -> None:
    assert share_of(share) == text
