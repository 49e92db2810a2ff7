"""Sites made from a seed, in sixteen layouts, with the records that a right manifest gives."""

# ruff: noqa: E501  # markup is easier to read unbroken
from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from html import escape
from random import Random

HOST = "http://made.test"
_HTML = "text/html; charset=utf-8"
_JSON = "application/json"
_NOUNS = [
    "hook",
    "reel",
    "river",
    "anchor",
    "lantern",
    "harbour",
    "compass",
    "net",
    "buoy",
    "gull",
    "tide",
    "sail",
    "mast",
    "keel",
    "oar",
]
_LOOKS = [
    "quiet",
    "silver",
    "northern",
    "hollow",
    "bright",
    "crooked",
    "patient",
    "amber",
    "distant",
    "early",
    "late",
    "copper",
]
_PEOPLE = [
    "Ada Bell",
    "Ben Okafor",
    "Cleo Marsh",
    "Dana Ruiz",
    "Emil Strand",
    "Fay Lindt",
    "Gus Palmer",
    "Hana Sato",
]
_TOWNS = [
    "Lisbon",
    "Oslo",
    "Ghent",
    "Turku",
    "Graz",
    "Varna",
    "Split",
    "Cork",
    "Malmo",
    "Bilbao",
    "Gdynia",
    "Trieste",
]
_TAGS = [
    "life",
    "love",
    "books",
    "humor",
    "truth",
    "world",
    "friends",
    "simile",
    "hope",
    "art",
    "time",
    "music",
]
_VERBS = [
    "carries",
    "holds",
    "keeps",
    "turns",
    "follows",
    "meets",
    "crosses",
    "remembers",
    "forgets",
    "watches",
]
_BLOCKS = [
    "card",
    "item",
    "entry",
    "product",
    "listing",
    "result",
    "tile",
    "teaser",
    "box",
    "record",
    "post",
    "offer",
]
_MONTHS = "January February March April May June July August September October November December"

Truth = Mapping[str, Sequence[str]]
"""The acceptable texts of each field of one item; `title` tells the items apart."""


@dataclass(slots=True)
class MadeSite:
    """Pages by path, and what is on them."""

    layout: str
    seed: int
    start: str = "/list"
    pages: dict[str, tuple[str, str]] = field(default_factory=dict)
    truth: list[Truth] = field(default_factory=list)

    def html(self, path: str, title: str, body: str, head: str = "", lang: str = "en") -> None:
        """Add a page."""
        text = (
            f'<!doctype html><html lang="{lang}"><head><title>{escape(title)}</title>{head}</head>'
            f"<body>{body}</body></html>"
        )
        self.pages[path] = _HTML, text

    def json(self, path: str, value: object) -> None:
        """Add an answer in JSON."""
        self.pages[path] = _JSON, json.dumps(value)


@dataclass(frozen=True, slots=True)
class Frame:
    """What all pages of a site have around their contents."""

    main: str
    name: str
    side: str
    menu: str
    foot: str
    heading: str
    is_heading_of_site: bool

    @classmethod
    def drawn(cls, random: Random) -> Frame:
        """Draw the frame of a site."""
        names = _NOUNS[: random.randrange(4, 12)]
        menu = "".join(f'<li><a href="/c/{one}">{one.capitalize()}</a></li>' for one in names)
        foot = "".join(
            f'<li><a href="/about/{n}">{one}</a></li>'
            for n, one in enumerate(["Imprint", "Privacy", "Help", "Jobs here"])
        )
        return cls(
            random.choice(["main", "div", "section"]),
            random.choice(["content", "main-content", "page", "wrapper"]),
            random.choice(["aside", "div"]),
            menu,
            foot,
            f"All {random.choice(_NOUNS)}s",
            random.random() < 0.3,
        )


class Maker:
    """Draws words, prices and dates; what it draws is not repeated within a site."""

    def __init__(self, seed: int, layout: str) -> None:
        self.random = Random(f"{layout} {seed}")
        self._titles: set[str] = set()
        self.frame = Frame.drawn(self.random)

    def one(self, several: Sequence[str]) -> str:
        return self.random.choice(several)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def title(self) -> str:
        while True:
            words = [self.one(_LOOKS), self.one(_NOUNS), "of", self.one(_TOWNS)]
            text = f"{' '.join(words).capitalize()} {self.random.randrange(10, 999)}"
            if text not in self._titles:
                self._titles.add(text)
                return text

    def sentence(self, least: int = 8, most: int = 22) -> str:
        count = self.random.randrange(least, most)
        words = [
            self.one([*_LOOKS, *_NOUNS, *_VERBS, "the", "a", "and", "of"]) for _ in range(count)
        ]
        return f"{' '.join(words).capitalize()} {self.random.randrange(10_000)}."

    def cents(self) -> int:
        return self.random.randrange(500, 90_000)

    def day(self) -> date:
        return date(2023, 1, 1) + timedelta(days=self.random.randrange(900))

    def person(self) -> str:
        return self.one(_PEOPLE)

    def town(self) -> str:
        return self.one(_TOWNS)

    def hash(self) -> str:
        signs = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
        return (
            "".join(self.random.choice(signs) for _ in range(3))
            + self.random.choice("23456789")
            + self.random.choice(signs)
        )


def dollars(cents: int) -> str:
    """Return an amount as American sites write it."""
    return f"${cents / 100:,.2f}"


def priced(cents: int) -> tuple[str, ...]:
    """Return the acceptable texts of a price."""
    return dollars(cents), f"{cents / 100:.2f}"


def dated(day: date) -> tuple[str, ...]:
    """Return the acceptable texts of a date."""
    return day.isoformat(), long_date(day)


def long_date(day: date) -> str:
    """Return a date in words."""
    return f"{_MONTHS.split()[day.month - 1]} {day.day}, {day.year}"


def slug(text: str) -> str:
    """Return a text as a part of an address."""
    return text.lower().replace(" ", "-")


def around(make: Maker, body: str, side: str = "", *, is_list: bool = False) -> str:
    """Return a page's body with the menu, side column and footer that real pages have."""
    frame = make.frame
    column = f'<{frame.side} class="sidebar">{side}</{frame.side}>' if side else ""
    head = f"<h1>{frame.heading}</h1>" if is_list and not frame.is_heading_of_site else ""
    logo = f"<h1>{frame.heading}</h1>" if frame.is_heading_of_site else "<b>Made</b>"
    return (
        f'<header class="site-header">{logo}<a href="/">Home</a><nav><ul>{frame.menu}</ul></nav>'
        f'</header><{frame.main} id="{frame.name}">{head}{body}</{frame.main}>{column}'
        f"<footer><ul>{frame.foot}</ul><p>Copyright 2026</p></footer>"
    )


def paged(
    site: MadeSite,
    make: Maker,
    parts: Sequence[str],
    wrap: Callable[[str], str],
    size: int = 12,
    *,
    side: str = "",
) -> None:
    """Add the list pages, with one of several kinds of pager."""
    pages = [parts[n : n + size] for n in range(0, len(parts), size)]
    kind = make.one(["next", "rel", "numbers", "word"])
    for number, shown in enumerate(pages, start=1):
        path = site.start if number == 1 else f"{site.start}?page={number}"
        pager = _pager(site.start, kind, number, len(pages))
        site.html(path, "A list", around(make, wrap("\n".join(shown)) + pager, side, is_list=True))


def _pager(start: str, kind: str, number: int, count: int) -> str:
    following = f"{start}?page={number + 1}"
    if kind == "numbers":
        links = " ".join(
            f'<a class="page-number" href="{start}?page={n}">{n}</a>' for n in range(1, count + 1)
        )
        return f'<div class="pagination">{links}</div>'
    if number == count:
        return '<div class="pagination"></div>'
    if kind == "rel":
        return f'<div class="pagination"><a rel="next" href="{following}">»</a></div>'
    name = ' class="next"' if kind == "next" else ""
    return f'<ul class="pager"><li{name}><a href="{following}">Next →</a></li></ul>'


def cards(seed: int) -> MadeSite:
    """Cards, each with a page of its own that says more."""
    make = Maker(seed, "cards")
    site = MadeSite("cards", seed)
    block, tag = make.one(_BLOCKS), make.one(["div", "article", "li"])
    heading = make.one(["h2", "h3", "h4"])
    style = make.one(["dl", "table", "spans"])
    parts = []
    for number in range(make.random.randrange(14, 30)):
        title, cents, day, code = make.title(), make.cents(), make.day(), f"C-{seed}-{number + 100}"
        about = make.sentence()
        path = f"/{block}/{number}-{slug(title)}"
        image = f'<img src="/i/{number}.jpg" alt="">' if make.chance(0.8) else ""
        parts.append(
            f'<{tag} class="{block}"><a class="{block}__image" href="{path}">{image}</a>'
            f'<{heading} class="{block}__title"><a href="{path}">{title}</a></{heading}>'
            f'<p class="{block}__price">{dollars(cents)}</p>'
            f'<a class="brand" href="/brand/{number % 3}">Brand {number % 3}</a></{tag}>'
        )
        facts = [("Price", dollars(cents)), ("Added", long_date(day)), ("Code", code)]
        site.html(path, title, around(make, _facts(style, title, facts, about)))
        site.truth.append(
            {
                "title": [title],
                "price": priced(cents),
                "added": dated(day),
                "code": [code],
                "about": [about],
            }
        )
    outer = "ul" if tag == "li" else "div"
    paged(site, make, parts, lambda inside: f'<{outer} class="{block}s">{inside}</{outer}>')
    return site


def _facts(style: str, title: str, facts: Sequence[tuple[str, str]], about: str) -> str:
    head = f'<article><h1>{title}</h1><p class="about">{about}</p>'
    if style == "dl":
        rows = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts)
        return f"{head}<dl>{rows}</dl></article>"
    if style == "table":
        rows = "".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in facts)
        return f"{head}<table>{rows}</table></article>"
    rows = "".join(
        f'<p><b>{name}:</b> <span class="{name.lower()}">{text}</span></p>' for name, text in facts
    )
    return f"{head}{rows}</article>"


def table(seed: int) -> MadeSite:
    """A table with a header row, and sometimes headings between the rows."""
    make = Maker(seed, "table")
    site = MadeSite("table", seed)
    has_head, has_sections = make.chance(0.5), make.chance(0.5)
    rows = []
    for number in range(make.random.randrange(20, 40)):
        title, person, cents, town = make.title(), make.person(), make.cents(), make.town()
        if has_sections and number % 9 == 4:
            rows.append(f'<tr><th colspan="4">Section {number}</th></tr>')
        rows.append(
            f"<tr><td>{title}</td><td>{person}</td><td>{town}</td><td>{dollars(cents)}</td></tr>"
        )
        site.truth.append(
            {"title": [title], "person": [person], "town": [town], "price": priced(cents)}
        )
    head = "<tr><th>Name</th><th>Owner</th><th>Town</th><th>Value</th></tr>"
    head = f"<thead>{head}</thead>" if has_head else head
    name = make.one(['class="data"', 'id="register"', 'class="table table-striped"', ""])
    body = f"<table {name}>{head}{''.join(rows)}</table>"
    site.html(site.start, "Register", around(make, body))
    return site


def quotes(seed: int) -> MadeSite:
    """Quotes without pages of their own; tags and authors have pages."""
    make = Maker(seed, "quotes")
    site = MadeSite("quotes", seed)
    block = make.one(["quote", "saying", "post", "entry"])
    parts = []
    for _ in range(make.random.randrange(20, 40)):
        text, person = f"“{make.sentence(6, 30)}”", make.person()
        tags = make.random.sample(_TAGS, make.random.randrange(1, 5))
        links = " ".join(f'<a class="tag" href="/tag/{tag}/">{tag}</a>' for tag in tags)
        parts.append(
            f'<div class="{block}"><span class="text">{text}</span><span>by <small class="author">'
            f'{person}</small> <a href="/author/{slug(person)}">(about)</a></span>'
            f'<div class="tags">Tags: {links}</div></div>'
        )
        site.truth.append({"title": [text], "author": [person], "tags": [", ".join(tags)]})
    for tag in _TAGS:
        site.html(f"/tag/{tag}/", "Quotes", around(make, "".join(parts[:4])))
    for person in _PEOPLE:
        site.html(
            f"/author/{slug(person)}", "Quotes", around(make, f"<h3>{person}</h3><p>Born.</p>")
        )
    cloud = "".join(
        f'<span class="tag-item"><a href="/tag/{tag}/">{tag}</a></span>' for tag in _TAGS
    )
    paged(
        site,
        make,
        parts,
        lambda inside: f'<div class="col-md-8">{inside}</div>',
        10,
        side=f"<h2>Top tags</h2>{cloud}",
    )
    return site


def jobs(seed: int) -> MadeSite:
    """Job advertisements on one page, some with additional classes and missing parts."""
    make = Maker(seed, "jobs")
    site = MadeSite("jobs", seed)
    extra = make.one(["messy", "featured", "urgent remote", "is-new highlighted"])
    parts = []
    for number in range(make.random.randrange(30, 55)):
        title, person, town, day = make.title(), f"{make.person()} Ltd", make.town(), make.day()
        names = f"job-listing {extra}" if make.chance(0.7) else "job-listing"
        salary = (
            f'<span class="salary">{dollars(make.cents() * 10)}</span>' if make.chance(0.6) else ""
        )
        badge = '<span class="badge">New</span>' if make.chance(0.3) else ""
        parts.append(
            f'<article class="{names}" data-id="{number}"><header>{badge}<h2 class="job-title">{title}</h2>'
            f'</header><div class="meta"><span class="company">{person}</span>'
            f'<span class="location">{town}</span>{salary}<time datetime="{day.isoformat()}">'
            f"{long_date(day)}</time></div><p>{make.sentence(10, 40)}</p></article>"
        )
        site.truth.append(
            {"title": [title], "company": [person], "location": [town], "date": dated(day)}
        )
    site.html(site.start, "Jobs", around(make, f'<div class="jobs">{"".join(parts)}</div>'))
    return site


def definitions(seed: int) -> MadeSite:
    """A glossary: definition lists, with a wrapper around each pair or without."""
    make = Maker(seed, "definitions")
    site = MadeSite("definitions", seed)
    is_wrapped = make.chance(0.5)
    parts = []
    for _ in range(make.random.randrange(15, 35)):
        title, text = make.title(), make.sentence(10, 40)
        pair = f"<dt>{title}</dt><dd>{text}</dd>"
        parts.append(f"<div>{pair}</div>" if is_wrapped else pair)
        site.truth.append({"title": [title], "text": [text]})
    name = make.one(['class="glossary"', 'id="terms"', ""])
    site.html(site.start, "Glossary", around(make, f"<dl {name}>{''.join(parts)}</dl>"))
    return site


def utility(seed: int) -> MadeSite:
    """A grid of products whose classes only describe the look, with ads between."""
    make = Maker(seed, "utility")
    site = MadeSite("utility", seed)
    has_ads = make.chance(0.5)
    parts = []
    for number in range(make.random.randrange(16, 40)):
        title, cents, text = make.title(), make.cents(), make.sentence(6, 14)
        path = f"/p/{number}"
        parts.append(
            f'<div class="group relative flex flex-col rounded-lg border p-4">'
            f'<div class="aspect-square w-full overflow-hidden"><img class="h-full w-full object-cover" '
            f'src="/img/{number}.webp" alt="{title}"></div><div class="mt-4 flex justify-between"><div>'
            f'<h3 class="text-sm text-gray-700"><a href="{path}"><span class="absolute inset-0"></span>{title}</a></h3>'
            f'<p class="mt-1 text-sm text-gray-500">{text}</p></div>'
            f'<p class="text-sm font-medium text-gray-900">{dollars(cents)}</p></div></div>'
        )
        if has_ads and number % 6 == 5:
            parts.append(
                '<div class="col-span-2 p-4 bg-gray-100"><p class="text-xs">Advertisement</p><a href="https://ads.test/x">Buy now</a></div>'
            )
        code = f"SKU{seed}{number:03}"
        site.html(
            path,
            title,
            around(
                make,
                f'<div class="flex"><div class="w-1/2"><h1 class="text-2xl font-bold">{title}</h1>'
                f'<p class="text-xl mt-2">{dollars(cents)}</p><p class="mt-4 leading-6">{text}</p>'
                f'<ul class="mt-2"><li>SKU: {code}</li><li>Weight: {number + 100} g</li></ul></div></div>',
            ),
        )
        site.truth.append(
            {"title": [title], "price": priced(cents), "text": [text], "code": [code]}
        )
    grid = "grid grid-cols-1 gap-6 sm:grid-cols-2 lg:grid-cols-4"
    paged(
        site,
        make,
        parts,
        lambda inside: (
            f'<div class="mx-auto max-w-7xl px-4"><div class="{grid}">{inside}</div></div>'
        ),
        16,
    )
    return site


def modules(seed: int) -> MadeSite:
    """A grid of products whose class names end in the hash of a build."""
    make = Maker(seed, "modules")
    site = MadeSite("modules", seed)
    hashes = {
        n: f"{n}__{make.hash()}"
        for n in (
            "ProductCard_root",
            "ProductCard_name",
            "Price_value",
            "Rating_stars",
            "Grid_container",
            "Media_box",
        )
    }
    is_bare = make.chance(0.4)  # styled components: nothing readable is left
    name = (
        (lambda one: f"sc-{make.random.randrange(16**6):06x} {one[-5:]}x1")
        if is_bare
        else hashes.__getitem__
    )
    drawn = {one: name(one) for one in hashes}
    parts = []
    for number in range(make.random.randrange(16, 36)):
        title, cents, stars = (
            make.title(),
            make.cents(),
            f"{make.random.randrange(10, 50) / 10:.1f} / 5",
        )
        parts.append(
            f'<li class="{drawn["ProductCard_root"]}"><div class="{drawn["Media_box"]}"><img src="/m/{number}.png"></div>'
            f'<div><div class="{drawn["ProductCard_name"]}">{title}</div><div><span class="{drawn["Price_value"]}">'
            f'{dollars(cents)}</span></div><div class="{drawn["Rating_stars"]}">{stars}</div></div></li>'
        )
        site.truth.append({"title": [title], "price": priced(cents), "stars": [stars]})
    paged(
        site,
        make,
        parts,
        lambda inside: f'<div><ul class="{drawn["Grid_container"]}">{inside}</ul></div>',
        12,
    )
    return site


def news(seed: int) -> MadeSite:
    """News with a headline story, teasers with pages, and lists in the side column."""
    make = Maker(seed, "news")
    site = MadeSite("news", seed)
    block = make.one(["teaser", "story", "article-preview", "entry"])
    parts = []
    for number in range(make.random.randrange(16, 30)):
        title, text, person, day = make.title(), make.sentence(14, 40), make.person(), make.day()
        path = f"/{day.year}/{day.month:02}/{slug(title)}-{number}.html"
        names = f"{block} {block}--lead" if number == 0 else block
        picture = f'<img src="/pic/{number}.jpg">' if make.chance(0.7) else ""
        parts.append(
            f'<article class="{names}">{picture}<h2><a href="{path}">{title}</a></h2>'
            f'<p class="byline">By <span class="author">{person}</span> <time datetime="{day.isoformat()}">'
            f'{long_date(day)}</time></p><p class="summary">{text}</p><a class="more" href="{path}">Read more</a></article>'
        )
        body = "".join(f"<p>{make.sentence(20, 60)}</p>" for _ in range(5))
        site.html(
            path,
            title,
            around(
                make,
                f'<article><h1>{title}</h1><p class="author">{person}</p><time datetime="{day.isoformat()}">{long_date(day)}</time><div class="body">{body}</div></article>',
            ),
        )
        site.truth.append(
            {"title": [title], "author": [person], "date": dated(day), "text": [text]}
        )
    most = "".join(f'<li><a href="/old/{n}">{make.title()}</a></li>' for n in range(10))
    side = f'<h3>Most read</h3><ol class="most-read">{most}</ol>'
    paged(site, make, parts, lambda inside: f'<div class="stream">{inside}</div>', 9, side=side)
    return site


def forum(seed: int) -> MadeSite:
    """Threads of a forum in a table, some of them pinned, each with a page of posts."""
    make = Maker(seed, "forum")
    site = MadeSite("forum", seed)
    parts = []
    for number in range(make.random.randrange(25, 45)):
        title, person = make.title(), make.person()
        replies, views = str(make.random.randrange(200)), str(make.random.randrange(200, 90_000))
        path = f"/viewtopic.php?t={1000 + number}"
        names = "row sticky" if number < 2 else f"row row{number % 2 + 1}"
        parts.append(
            f'<tr class="{names}"><td class="icon"><img src="/s/topic.gif" alt=""></td><td class="subject">'
            f'<a class="topictitle" href="{path}">{title}</a><br>by <a class="username" href="/u/{slug(person)}">{person}</a></td>'
            f'<td class="replies">{replies}</td><td class="views">{views}</td></tr>'
        )
        posts = "".join(
            f'<div class="post"><p class="by">{make.person()}</p><div class="content">{make.sentence()}</div></div>'
            for _ in range(3)
        )
        site.html(
            path,
            f"{title} - Forum",
            around(make, f'<h2 class="topic-title"><a href="{path}">{title}</a></h2>{posts}'),
        )
        site.truth.append(
            {"title": [title], "author": [person], "replies": [replies], "views": [views]}
        )
    head = "<tr><th></th><th>Topics</th><th>Replies</th><th>Views</th></tr>"
    paged(site, make, parts, lambda inside: f'<table class="forumline">{head}{inside}</table>', 20)
    return site


def homes(seed: int) -> MadeSite:
    """Homes for sale, with labelled facts in each advertisement."""
    make = Maker(seed, "homes")
    site = MadeSite("homes", seed)
    block, style = make.one(["property", "listing-card", "offer"]), make.one(["dl", "table"])
    parts = []
    for number in range(make.random.randrange(15, 30)):
        title, cents, town = make.title(), make.cents() * 1000, make.town()
        area, rooms = f"{make.random.randrange(30, 220)} m²", str(make.random.randrange(1, 7))
        path = f"/homes/{slug(title)}"
        parts.append(
            f'<section class="{block}"><div class="photo"><a href="{path}"><img src="/h/{number}.jpg"></a></div>'
            f'<div class="facts"><h3><a href="{path}">{title}</a></h3><div class="price">{dollars(cents)}</div>'
            f"<ul><li>Area: {area}</li><li>Rooms: {rooms}</li><li>Town: {town}</li></ul></div></section>"
        )
        code = f"REF{seed}{number}"
        facts = [("Area", area), ("Rooms", rooms), ("Reference", code), ("Price", dollars(cents))]
        site.html(path, title, around(make, _facts(style, title, facts, make.sentence())))
        site.truth.append(
            {
                "title": [title],
                "price": priced(cents),
                "area": [area],
                "rooms": [rooms],
                "code": [code],
            }
        )
    paged(site, make, parts, lambda inside: f'<div class="search-results">{inside}</div>', 10)
    return site


def directory(seed: int) -> MadeSite:
    """A directory by letters: several lists under headings, each entry with its own page."""
    make = Maker(seed, "directory")
    site = MadeSite("directory", seed)
    sections: dict[str, list[str]] = {}
    for number in range(make.random.randrange(30, 60)):
        title, town, phone = (
            make.title(),
            make.town(),
            f"+1 555 {make.random.randrange(1000, 9999)}",
        )
        path = f"/company/{number}"
        entry = f'<li><a href="{path}">{title}</a> <span class="town">{town}</span></li>'
        sections.setdefault(title[0], []).append(entry)
        site.html(
            path,
            title,
            around(
                make,
                f'<h1 class="name">{title}</h1><p class="town">{town}</p><p class="phone">{phone}</p><p class="text">{make.sentence()}</p>',
            ),
        )
        site.truth.append({"title": [title], "town": [town], "phone": [phone]})
    letters = "".join(f'<a href="#{one}">{one}</a> ' for one in sorted(sections))
    lists = "".join(
        f'<h2 id="{one}">{one}</h2><ul class="companies">{"".join(sections[one])}</ul>'
        for one in sorted(sections)
    )
    site.html(site.start, "Directory", around(make, f'<p class="letters">{letters}</p>{lists}'))
    return site


def search(seed: int) -> MadeSite:
    """Results of a search with advertisements between them."""
    make = Maker(seed, "search")
    site = MadeSite("search", seed)
    kind = make.one(["marked", "other", "inner"])
    parts = []
    for number in range(make.random.randrange(20, 36)):
        title, text, person = make.title(), make.sentence(12, 30), make.person()
        link = f"https://elsewhere.test/{number}/{slug(title)}"
        parts.append(
            f'<div class="result"><h3><a href="{link}">{title}</a></h3><cite>{person}</cite>'
            f'<p class="snippet">{text}</p></div>'
        )
        if number % 4 == 1:
            advert = f'<h3><a href="https://ads.test/{number}">{make.title()}</a></h3>'
            if kind == "marked":
                parts.append(
                    f'<div class="result sponsored">{advert}<cite>Ad</cite><p class="snippet">{make.sentence()}</p></div>'
                )
            elif kind == "other":
                parts.append(f'<div class="advert">{advert}</div>')
            else:
                parts.append("<div><p>Try our app</p></div>")
        site.truth.append({"title": [title], "url": [link], "author": [person], "text": [text]})
    paged(site, make, parts, lambda inside: f'<div id="results">{inside}</div>', 15)
    return site


def columns(seed: int) -> MadeSite:
    """Items divided into columns or sections."""
    make = Maker(seed, "columns")
    site = MadeSite("columns", seed)
    block = make.one(["member", "speaker", "book", "plant"])
    has_class = make.chance(0.6)
    parts = []
    for _ in range(make.random.randrange(18, 33)):
        title, role, town = make.title(), make.sentence(3, 6), make.town()
        name = f' class="{block}"' if has_class else ""
        parts.append(f"<div{name}><h4>{title}</h4><p>{role}</p><em>{town}</em></div>")
        site.truth.append({"title": [title], "role": [role], "town": [town]})
    count = make.random.randrange(3, 5)
    size = -(-len(parts) // count)
    inside = "".join(
        f'<div class="column"><h3>Part {n + 1}</h3>{"".join(parts[n * size : (n + 1) * size])}</div>'
        for n in range(count)
    )
    site.html(site.start, "People", around(make, f'<div class="columns">{inside}</div>'))
    return site


def _objects(make: Maker, site: MadeSite, count: int) -> list[dict[str, object]]:
    objects = []
    for number in range(count):
        title, cents, day, town = make.title(), make.cents(), make.day(), make.town()
        objects.append(
            {
                "id": 5000 + number,
                "title": title,
                "price": cents / 100,
                "createdAt": f"{day.isoformat()}T08:00:00Z",
                "place": {"town": town, "country": "XX"},
                "tags": make.random.sample(_TAGS, 2),
            }
        )
        site.truth.append(
            {
                "title": [title],
                "price": [f"{cents / 100:.2f}"],
                "town": [town],
                "id": [str(5000 + number)],
            }
        )
    return objects


def api(seed: int) -> MadeSite:
    """An API that answers in JSON, with one of several kinds of pages."""
    make = Maker(seed, "api")
    site = MadeSite("api", seed, "/api/items")
    kind = make.one(["next", "pages", "offset", "single", "cursor"])
    objects = _objects(make, site, make.random.randrange(25, 45))
    _serve(site, site.start, kind, objects)
    return site


def _serve(site: MadeSite, start: str, kind: str, objects: list[dict[str, object]]) -> None:
    size = 10
    count = -(-len(objects) // size)
    if kind == "single":
        site.json(start, objects)
        return
    for number in range(1, count + 2):
        shown = objects[(number - 1) * size : number * size]
        is_last = number >= count
        if kind == "next":
            following = None if is_last else f"{HOST}{start}?page={number + 1}"
            value: object = {"count": len(objects), "next": following, "results": shown}
            site.json(start if number == 1 else f"{start}?page={number}", value)
        elif kind == "pages":
            value = {
                "data": shown,
                "meta": {"page": number, "total_pages": count, "total": len(objects)},
            }
            site.json(f"{start}?page={number}", value)
            if number == 1:
                site.json(start, value)
        elif kind == "offset":
            offset = (number - 1) * size
            value = {"items": shown, "total": len(objects), "offset": offset, "limit": size}
            site.json(f"{start}?offset={offset}&limit={size}", value)
            if number == 1:
                site.json(start, value)
        else:
            value = {"items": shown, "next_cursor": None if is_last else f"c{number + 1}"}
            site.json(start if number == 1 else f"{start}?cursor=c{number}", value)


def next_data(seed: int) -> MadeSite:
    """A page drawn by scripts from JSON that it carries."""
    make = Maker(seed, "next_data")
    site = MadeSite("next_data", seed)
    objects = _objects(make, site, make.random.randrange(12, 30))
    kind = make.one(["next", "json", "window"])
    state = {
        "props": {
            "pageProps": {
                "menu": [{"label": one, "href": f"/{one}"} for one in _NOUNS[:5]],
                "products": objects,
            }
        }
    }
    if kind == "next":
        script = f'<script id="__NEXT_DATA__" type="application/json">{json.dumps(state)}</script>'
        body = '<div id="__next"></div>'
    elif kind == "json":
        script = (
            f'<script type="application/json" data-hydrate>{json.dumps(state["props"])}</script>'
        )
        body = '<div id="app"></div>'
    else:
        script = f"<script>window.__INITIAL_STATE__ = {json.dumps(state)};</script>"
        body = '<div id="root">Loading…</div>'
    site.html(site.start, "Shop", f'{body}{script}<script src="/static/app.js"></script>')
    return site


def shell(seed: int) -> MadeSite:
    """An empty page whose script asks an API."""
    make = Maker(seed, "shell")
    site = MadeSite("shell", seed)
    objects = _objects(make, site, make.random.randrange(25, 40))
    kind = make.one(["next", "pages", "offset"])
    path = make.one(["/api/v1/products", "/api/items", "/rest/catalogue"])
    _serve(site, path, kind, objects)
    code = make.one(
        [
            f'fetch("{path}").then(r => r.json()).then(draw);',
            f"axios.get('{path}').then(draw);",
            f'const API = "{path}"; load(API);',
        ]
    )
    body = (
        '<noscript>You need to enable JavaScript to run this app.</noscript><div id="root"></div>'
    )
    if make.chance(0.5):
        site.pages["/static/main.js"] = "text/javascript", f"(()=>{{{code}}})()"
        site.html(site.start, "App", f'{body}<script src="/static/main.js"></script>')
    else:
        site.html(site.start, "App", f"{body}<script>{code}</script>")
    return site


LAYOUTS: Mapping[str, Callable[[int], MadeSite]] = {
    one.__name__: one
    for one in (
        *(cards, table, quotes, jobs, definitions, utility, modules, news, forum, homes),
        *(directory, search, columns, api, next_data, shell),
    )
}
