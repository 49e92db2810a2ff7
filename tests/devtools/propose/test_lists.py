"""Which elements of a page are proposed as its items, and when a proposal says it is unsure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from longline.core.errors import Gone
from longline.core.model import Usage
from longline.devtools.propose.fields import fields_of_elements
from longline.devtools.propose.groups import GroupFinder
from longline.devtools.propose.proposal import Proposal
from longline.devtools.propose.proposer import Proposer
from longline.devtools.propose.structure import Group
from longline.http.messages import Middleware, Page, Request
from longline.sources.html.content import node_text
from tests.virtual import VirtualClock

URL = "https://shop.test/list"
_WORDS = """
    amber birch copper delta ember frost grove harbor island jasper kelp lumen
"""
WORDS = _WORDS.split()


def page_of(body: str, url: str = URL) -> Page:
    text = f"<!doctype html><html><body>{body}</body></html>"
    return Page(url, 200, {"content-type": "text/html"}, text.encode())


def best(body: str, url: str = URL) -> Group:
    return GroupFinder(page_of(body, url)).find()[0]


def titles(group: Group, css: str) -> list[str]:
    return [node_text(found) for node in group.nodes if (found := node.css_first(css)) is not None]


class OnePage(Middleware):
    """Answers with one page; every other address is gone."""

    def __init__(self, body: str) -> None:
        self._page = page_of(body)

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        if request.url != URL:
            raise Gone(request.url, 404)
        return self._page


async def proposed(body: str, clock: VirtualClock) -> Proposal:
    proposer = Proposer(OnePage(body), URL, "list", clock=clock)
    return await proposer.best(await proposer.survey())


def codes(proposal: Proposal) -> set[str]:
    return {one.code for one in proposal.warnings}


def row(cells: Sequence[str], attributes: str = "") -> str:
    return f"<tr{attributes}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def release(number: int, word: str) -> list[str]:
    return [
        f"{number}.",
        f'<a href="/r/{number}"><b>Release {word}</b></a>',
        f"{number * 7} MB",
        f"{number} days",
    ]


RELEASES = [release(number, word) for number, word in enumerate(WORDS, start=1)]


def test_a_wrapper_of_the_whole_page_is_not_a_side_column() -> None:
    rows = "".join(row(cells) for cells in RELEASES)

    group = best(f'<div id="header_holder"><h1>All</h1><table>{rows}</table></div>')

    assert (len(group.nodes), group.is_aside) == (12, False)


def test_a_class_for_the_look_of_a_row_is_ignored() -> None:
    rows = "".join(row(cells, ' class="forum_header_border"') for cells in RELEASES)
    menu = "".join(f'<li><a href="/c/{n}">Part {n}</a></li>' for n in range(30))

    group = best(f'<ul>{menu}</ul><table class="header_border">{rows}</table>')

    assert titles(group, "b") == [f"Release {word}" for word in WORDS]
    assert not group.is_aside


def test_rows_of_nested_layout_tables_are_found() -> None:
    rows = "".join(row(cells) for cells in RELEASES)
    inner = (
        f"<table><tr><td><table><tr><td><table>{rows}</table></td></tr></table></td></tr></table>"
    )

    group = best(f"<center><table><tr><td>{inner}</td></tr></table></center>")

    assert titles(group, "b") == [f"Release {word}" for word in WORDS]


async def test_rows_of_two_kinds_in_turn_are_a_warning(clock: VirtualClock) -> None:
    rows = "".join(
        f'<tr><td>{n}.</td><td><i>up</i></td><td><a href="/s/{n}">Story of {word}</a>'
        f"<em>({word}.test)</em></td></tr>"
        f'<tr><td colspan="2"></td><td><span>{n * 3} points</span> by <a href="/u/{word}">{word}'
        f'</a> <a href="/s/{n}/talk">{n + 5} comments</a></td></tr>'
        '<tr style="height:5px"></tr>'
        for n, word in enumerate(WORDS)
    )

    proposal = await proposed(f"<center><table>{rows}</table></center>", clock)

    assert "mixed_items" in codes(proposal)


def test_a_class_that_alternates_does_not_halve_the_list() -> None:
    items = "".join(
        f'<ul class="{"data_alt" if n % 2 else "data"}"><li><a href="/t/{n}">Title {word}</a></li>'
        f"<li>{n * 3} MB</li><li>{n * 31}</li></ul>"
        for n, word in enumerate(WORDS)
    )

    group = best(f'<div class="grid">{items}</div>')

    assert titles(group, "a") == [f"Title {word}" for word in WORDS]
    assert group.followers == []


@pytest.mark.parametrize("sizes", [(3, 1, 1, 2, 1, 4), (1, 1, 2, 1, 1, 1, 1, 2, 2)])
def test_items_under_several_headings_are_one_list(sizes: Sequence[int]) -> None:
    numbers = iter(range(100))
    parts = "".join(
        f'<div class="town"><h2><a href="/t/{place}">Town {place}</a></h2><ul>'
        + "".join(
            f'<li><div class="card"><h3>Cinema {number} in {WORDS[number % 12]}</h3>'
            f"<address>{number * 3} Long Street, {WORDS[-number % 12]}</address>"
            f"<span>{number + 2} screens</span></div></li>"
            for number, _ in zip(numbers, range(size), strict=False)
        )
        + "</ul></div>"
        for place, size in enumerate(sizes)
    )

    group = best(f"<main>{parts}</main>")

    assert len(titles(group, "h3")) == len(group.nodes) > len(sizes)


HEAD = row(["", "Issue", "Volume", "Price"])


def stock(number: int, word: str) -> list[str]:
    return [str(number), f'<a href="/q/{word}">{word}</a>', f"{number * 970}", f"{number}.05"]


STOCKS = "".join(row(stock(number, word)) for number, word in enumerate(WORDS, start=1))


@pytest.mark.parametrize(
    "rows",
    [
        HEAD + STOCKS,
        STOCKS + row(["", '<a href="/q/all">All of them</a>', "99999", "7.00"]),
        HEAD + STOCKS + row(["", "Total", "", "75.15"]),
        row(["No.", "Issue", "Volume", "Price"], 'class="title"') + STOCKS,
        row([f'<a href="?sort={name}"><b>{name}</b></a>' for name in "abcd"]) + STOCKS,
    ],
)
def test_a_row_that_names_or_adds_up_columns_is_not_an_item(rows: str) -> None:
    group = best(f'<table class="quotes">{rows}</table>')

    assert titles(group, "a") == WORDS
    assert len(group.nodes) == len(WORDS)


def test_a_title_with_icons_is_not_a_menu() -> None:
    rows = "".join(
        row(
            [
                f'<a href="/show/{n}"><img src="/i.png"></a>',
                f'<a href="/e/{n}">Episode {n} of {word}, in full</a>',
                f'<a href="/d/{n}"><img src="/a.png"></a><a href="/m/{n}"><img src="/b.png"></a>',
                f"{n}h",
            ],
            ' class="entry"',
        )
        for n, word in enumerate(WORDS)
    )
    other = row(["Airs today, in a long sentence about what is shown and where it is shown"])

    group = best(f'<table class="list">{other}{rows}{other}</table>')

    assert group.ids == frozenset(node.mem_id for node in group.nodes if len(node.css("td")) == 4)
    assert len(group.nodes) == len(WORDS)


def test_cells_of_one_class_are_fields_of_their_own() -> None:
    rows = "".join(
        f'<tr><td class="num">{n}</td><td><a href="/q/{word}">{word}</a></td>'
        f'<td class="num">{n * 970}</td><td class="num">{n * 1.37:.2f}</td></tr>'
        for n, word in enumerate(WORDS, start=1)
    )

    fields = fields_of_elements(best(f"<table>{rows}</table>"), None)

    assert not any(one.place.get("many") for one in fields)
    assert {"1", "970", "1.37", "amber"} <= {one.samples[0] for one in fields}


def test_a_heading_that_is_a_link_in_some_items_is_one_field() -> None:
    cards = "".join(
        '<div class="card"><h3 class="title">'
        + (f'<a href="/c/{n}">Cinema {word}</a>' if n % 2 else f"<span>Cinema {word}</span>")
        + f'</h3><p class="street">{n} Long Street</p></div>'
        for n, word in enumerate(WORDS)
    )

    fields = fields_of_elements(best(f"<main>{cards}</main>"), None)

    (title,) = [one for one in fields if one.samples[0] == "Cinema amber"]
    assert title.filled == 1


def cards(number: int, first: int = 0) -> str:
    return "".join(
        f'<div class="card"><h3><a href="/p/{n}">Thing {n} of {WORDS[n % 12]}</a></h3>'
        f"<p>Made of {WORDS[-n % 12]} in {1900 + n}, with care</p><span>{n}.50</span></div>"
        for n in range(first, first + number)
    )


async def test_a_plain_list_has_no_warning_about_its_choice(clock: VirtualClock) -> None:
    proposal = await proposed(f"<main>{cards(12)}</main>", clock)

    assert codes(proposal) == {"pages_unreadable"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (f"<p>{'All about us and them. ' * 20}</p><aside>{cards(8)}</aside>", "side_list"),
        (f"<main>{cards(12)}</main><p>Items 1 - 20 of 532</p>", "stated_count"),
        (f"<main>{cards(4)}</main>", "few_items"),
        (f"<main>{cards(6)}</main><p>{'A long text about us. ' * 60}</p>", "small_part"),
        (
            "<ul>"
            + "".join(f'<li><a href="/c/{w}">All {w}</a> {n}</li>' for n, w in enumerate(WORDS))
            + "</ul>",
            "only_links",
        ),
    ],
)
async def test_a_doubtful_choice_has_a_warning(clock: VirtualClock, body: str, code: str) -> None:
    assert code in codes(await proposed(body, clock))


async def test_a_stated_count_that_fits_is_not_a_warning(clock: VirtualClock) -> None:
    proposal = await proposed(f"<main>{cards(12)}</main><p>Items 1 - 12 of 532</p>", clock)

    assert "stated_count" not in codes(proposal)


def test_the_folder_above_is_not_a_file_of_an_index() -> None:
    up = row(["", '<a href="/files/">Parent Directory</a>', "", "-"])
    files = "".join(
        row(["", f'<a href="{word}.csv">{word}.csv</a>', f"2020-10-{number}", f"{number}K"])
        for number, word in enumerate(WORDS, start=10)
    )

    group = best(f"<h1>Index</h1><table>{up}{files}</table>", "https://shop.test/files/2020/")

    assert titles(group, "a") == [f"{word}.csv" for word in WORDS]


async def test_rows_of_tables_with_other_columns_are_a_warning(clock: VirtualClock) -> None:
    names = "<tr><th>No</th><th>Issue</th><th>Volume</th><th>Price</th></tr>"
    people = "<tr><th>Person</th><th>Mail</th></tr>" + "".join(
        row([f'<a href="/w/{word}">{word}</a>', f"{word}@a.test"]) for word in WORDS[:5]
    )

    body = f'<table class="t">{names}{STOCKS}</table><table class="t">{people}</table>'
    proposal = await proposed(body, clock)

    assert "several_tables" in codes(proposal)


def test_items_with_and_without_a_picture_are_one_list() -> None:
    plain = cards(7)
    pictured = cards(16, first=7).replace(
        '<div class="card">',
        '<div class="card"><a class="image" href="/i"><p><img src="/i"></p></a>',
    )

    group = best(f'<main class="row">{plain}{pictured}</main>')

    assert len(group.nodes) == 23


async def test_several_items_in_each_row_are_a_warning(clock: VirtualClock) -> None:
    cells = [
        f'<td class="user"><div><a href="/u/{n}">User {word} {n}</a></div><div><a href="/u/{n}">'
        f'<img src="/u/{n}.png"></a></div><div><small>{n} seconds ago</small></div></td>'
        for n, word in enumerate(WORDS * 2)
    ]
    rows = "".join(f"<tr>{''.join(cells[n : n + 4])}</tr>" for n in range(0, len(cells), 4))

    proposal = await proposed(f"<table>{rows}</table>", clock)

    assert "list_inside" in codes(proposal)


def test_a_class_of_most_items_does_not_leave_out_the_others() -> None:
    plain = cards(20).replace('class="card"', 'class="card plain"')
    voice = "<dl><dt>Voice</dt><dd>Someone</dd></dl><em>New</em>"
    more = cards(4, first=20).replace("</h3>", f"</h3>{voice}")

    group = best(f"<main>{plain}{more}</main>")

    assert len(group.nodes) == 24


def test_a_list_in_two_parents_is_proposed_whole() -> None:
    first, second = cards(9), cards(9, first=9)

    group = best(f'<main><div id="top">{first}</div><div>{second}</div></main>')

    assert (len(group.nodes), group.left_out) == (18, 0)


async def test_elements_of_the_same_structure_that_are_left_out_are_reported(
    clock: VirtualClock,
) -> None:
    first = cards(9).replace(' class="card"', "")
    second = cards(9, first=9).replace(' class="card"', "")
    body = f'<div id="top">{first}</div><p>More</p><div><div><div>{second}</div></div></div>'

    proposal = await proposed(body, clock)

    assert proposal.candidate.count == 9
    assert codes(proposal) & {"left_out", "rival_list"}


def test_an_element_without_the_class_of_the_others_is_not_an_item() -> None:
    parts = "".join(f"<div>{word} {word}</div>" for word in WORDS[:4])
    notice = f'<div id="notice"><img src="/free.png">{parts} {"This site is free. " * 4}</div>'
    people = "".join(
        f'<div class="person"><a href="/p/{n}"><img src="/{n}.png"></a><a href="/c/{n}">{word}</a>'
        f"<div>Name {word}</div><div>{n + 20} years</div><div>About {word} {n}</div></div>"
        for n, word in enumerate(WORDS[:10])
    )

    group = best(f'<div id="main"><div>{notice}{people}</div></div>')

    assert len(group.nodes) == 10
