"""Every example in `examples/`, run on the practice web: what is stored is what the site holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest
import yaml

from longline.config.auth import Auth
from longline.core.errors import UnknownSecret
from longline.core.model import ItemState, JobState
from longline.engine.report import JobReport
from longline.orchestrator import Orchestrator
from longline.sandbox.sites.edge_cases import Mood, mood_of
from longline.sandbox.web import PracticeWeb, WebOptions
from longline.sources.api.manifest import Action
from longline.sources.api.pagination import Pagination as ApiPagination
from longline.sources.html.pagination import Pagination as HtmlPagination
from longline.storage.query import RecordQuery
from tests.http.browsing import skip_without_browser
from tests.virtual import VirtualClock

EXAMPLES = Path(__file__).parents[2] / "examples"
SECRETS = {
    "BOOKS_TOKEN": "practice-token",
    "STATIONS_KEY": "practice-key",
    "READINGS_KEY": "practice-key",
    "INVOICES_SECRET": "practice-secret",
    "PARTS_PASSWORD": "practice",
    "MEMBERS_PASSWORD": "practice",
}


@dataclass(frozen=True)
class Collected:
    report: JobReport
    rows: list[dict[str, Any]]
    """All records of the source as they are now, with their notes."""

    @property
    def data(self) -> list[Any]:
        return in_order(row["data"] for row in self.rows)

    def noted(self, field: str) -> set[str]:
        """Return the keys of the records with a note about a field."""
        return {
            row["key"]
            for row in self.rows
            if field in {note["field"] for note in row["about"]["notes"]}
        }


Run = Callable[..., Awaitable[Collected]]


def in_order(rows: Any) -> list[Any]:
    """Return rows in an order that depends on their contents alone."""
    return sorted(rows, key=lambda row: orjson.dumps(row, option=orjson.OPT_SORT_KEYS))


def only(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


@pytest.fixture
async def web(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PracticeWeb]:
    async with PracticeWeb(WebOptions(items=1), clock=clock) as web:
        monkeypatch.setenv("PRACTICE_HOST", web.url.removeprefix("http://"))
        for name, value in SECRETS.items():
            monkeypatch.setenv(name, value)
        yield web


@pytest.fixture
def run(web: PracticeWeb, clock: VirtualClock, tmp_path: Path) -> Run:
    """Run an example as `longline run examples/NAME.yaml --set base_url=…` does."""

    async def start(name: str, *, fresh: bool = False, **params: Any) -> Collected:
        told = {"set": {"base_url": web.url}, **params}
        async with Orchestrator(home=tmp_path, clock=clock) as longline:
            report = await longline.execute(str(EXAMPLES / f"{name}.yaml"), told, fresh=fresh)
            rows = await longline.store.records.list(RecordQuery(source=name))
        return Collected(report, rows)

    return start


# ---------------------------------------------------------------- APIs


async def test_books_are_read_by_cursor_with_a_bearer_token(web: PracticeWeb, run: Run) -> None:
    found = await run("books")

    books = web.sites.rest.truth()["books"]
    assert found.report.state is JobState.COMPLETE
    assert found.data == in_order(
        {
            **only(book, "title", "pages", "tags"),
            "author": book["author"]["name"],
            "born": book["author"]["born"],
        }
        for book in books
    )


async def test_without_its_secret_an_example_does_not_ask_at_all(
    web: PracticeWeb, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BOOKS_TOKEN")

    with pytest.raises(UnknownSecret, match="BOOKS_TOKEN"):
        await run("books")

    assert web.tally.requests == 0


@pytest.mark.parametrize("name", ["stations", "parts"])
async def test_links_and_next_addresses_are_followed_to_the_end(
    web: PracticeWeb, run: Run, name: str
) -> None:
    found = await run(name)

    assert found.report.state is JobState.COMPLETE
    assert found.data == in_order(web.sites.rest.truth()[name])


async def test_readings_are_cut_by_offset_and_say_what_is_missing(
    web: PracticeWeb, run: Run
) -> None:
    found = await run("readings")

    readings = web.sites.rest.truth()["readings"]
    assert [row["celsius"] for row in found.data] == [
        row["celsius"] for row in in_order(only(row, "taken", "celsius") for row in readings)
    ]
    assert len(found.noted("celsius")) == sum(row["celsius"] is None for row in readings) > 0
    assert web.tally.hits["/rest/readings"] == 2


async def test_a_token_that_is_withdrawn_mid_run_is_renewed(web: PracticeWeb, run: Run) -> None:
    found = await run("invoices")

    invoices = web.sites.rest.truth()["invoices"]
    assert found.report.state is JobState.COMPLETE
    assert found.data == in_order(
        {"number": row["number"], "amount": float(row["amount"])} for row in invoices
    )
    assert web.sites.rest.office.given == 2


async def test_orders_know_their_customer_and_hold_their_lines(web: PracticeWeb, run: Run) -> None:
    found = await run("orders")

    truth = web.sites.rest.truth()
    names = {row["id"]: row["name"] for row in truth["customers"]}
    assert found.report.state is JobState.COMPLETE
    assert found.data == in_order(
        {
            **only(order, "id", "state"),
            "customer": names[order["customer_id"]],
            "lines": [
                only(line, "product", "count")
                for line in truth["lines"]
                if line["order_id"] == order["id"]
            ],
        }
        for order in truth["orders"]
    )


async def test_a_second_run_asks_only_for_what_has_changed(
    web: PracticeWeb, run: Run, clock: VirtualClock
) -> None:
    await run("changes")
    await clock.sleep(3600)
    web.sites.rest.change(4, 9)
    web.sites.rest.sinces.clear()

    second = await run("changes", fresh=True)

    assert second.data == in_order(web.sites.rest.truth()["changes"])
    assert second.report.progress.counts[ItemState.STORED] == 2
    assert len(web.sites.rest.sinces) == 1
    assert web.sites.rest.sinces[0]


async def test_handlers_wait_retry_skip_and_fail_as_they_are_told(
    web: PracticeWeb, run: Run
) -> None:
    found = await run("errands")

    moods = [mood_of(number) for number in range(1, 25)]
    lost = moods.count(Mood.GONE) + moods.count(Mood.WITHDRAWN)
    assert found.report.state is JobState.PARTIAL
    assert found.data == in_order(web.sites.rest.truth()["errands"])
    assert found.report.progress.counts[ItemState.SKIPPED] == lost
    assert found.report.progress.counts[ItemState.FAILED] == moods.count(Mood.CORRUPT)


async def test_a_connection_of_graphql_is_followed_past_an_error(
    web: PracticeWeb, run: Run
) -> None:
    found = await run("albums")

    assert found.report.state is JobState.COMPLETE
    assert found.data == in_order(
        {
            **only(album, "title", "year"),
            "artist": album["artist"]["name"],
            "seconds": sum(track["seconds"] for track in album["tracks"]),
        }
        for album in web.sites.graphql.truth()["albums"]
    )
    assert web.tally.hits["/graphql"] == 4


# ---------------------------------------------------------------- pages


async def test_quotes_are_completed_from_the_pages_of_their_authors(
    web: PracticeWeb, run: Run
) -> None:
    found = await run("quotes")

    truth = web.sites.quotes.truth()
    authors = {author["name"]: author for author in truth["authors"]}
    assert found.report.state is JobState.COMPLETE
    assert found.data == in_order(
        {
            **only(quote, "text", "author", "tags"),
            **only(authors[quote["author"]], "born", "place"),
        }
        for quote in truth["quotes"]
    )
    assert {count for path, count in web.tally.hits.items() if "/author/" in path} == {1}


async def test_an_author_of_many_quotes_is_read_once(web: PracticeWeb, run: Run) -> None:
    found = await run("authors")

    truth = web.sites.quotes.truth()
    quoted = {quote["author"] for quote in truth["quotes"]}
    assert found.data == in_order(
        only(author, "name", "born", "place", "about")
        for author in truth["authors"]
        if author["name"] in quoted
    )
    assert {count for path, count in web.tally.hits.items() if "/author/" in path} == {1}


def euros(cents: int) -> dict[str, Any]:
    return {"amount": cents / 100, "currency": "EUR"}


STARS = {1: "One", 2: "Two", 3: "Three", 4: "Four", 5: "Five", None: None}


async def test_a_shop_is_read_through_its_categories(web: PracticeWeb, run: Run) -> None:
    found = await run("shop")

    assert found.report.state is JobState.COMPLETE
    assert found.data == in_order(
        {
            **only(row, "name", "category", "stock", "description"),
            "price": euros(row["cents"]),
            "rating": STARS[row["rating"]],
            "variants": [only(one, "sku", "price") for one in row["variants"]],
        }
        for row in web.sites.shop.truth()["products"]
    )


async def test_a_product_without_a_rating_says_why_it_has_none(web: PracticeWeb, run: Run) -> None:
    found = await run("shop")

    bare = {str(row["id"]) for row in web.sites.shop.truth()["products"] if not row["rating"]}
    assert found.noted("rating") == bare


@pytest.mark.parametrize("name", ["shop_offset", "shop_more"])
async def test_a_list_is_read_by_offset_and_by_loading_more(
    web: PracticeWeb, run: Run, name: str
) -> None:
    found = await run(name)

    assert found.report.state is JobState.COMPLETE
    assert found.data == in_order(
        {"name": row["name"], "price": euros(row["cents"])}
        for row in web.sites.shop.truth()["products"]
    )


async def test_news_are_found_in_sitemaps_and_read_from_json_ld(web: PracticeWeb, run: Run) -> None:
    found = await run("news")

    assert found.report.state is JobState.COMPLETE
    assert found.data == in_order(
        only(row, "headline", "published", "author", "section", "paragraphs")
        for row in web.sites.news.truth()["articles"]
    )
    assert web.tally.hits["/news/about/"] == 0


async def test_members_log_in_again_when_the_session_ends(web: PracticeWeb, run: Run) -> None:
    found = await run("members")

    assert found.report.state is JobState.COMPLETE
    assert found.data == in_order(
        only(row, "title", "place", "catch") for row in web.sites.members.truth()["notes"]
    )
    assert web.sites.members.logins == 2


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("name", "fields"), [("app", ("name", "price", "text")), ("app_pages", ("name", "price"))]
)
async def test_lists_drawn_by_javascript_are_read_in_a_browser(
    tmp_path: Path, name: str, fields: tuple[str, ...]
) -> None:
    skip_without_browser()
    async with PracticeWeb(WebOptions(items=1)) as web, Orchestrator(home=tmp_path) as longline:
        settings = {"set": {"base_url": web.url}, "rate": "unlimited"}
        report = await longline.execute(str(EXAMPLES / f"{name}.yaml"), settings)
        rows = await longline.store.records.list(RecordQuery(source=name))

    assert report.state is JobState.COMPLETE
    assert in_order(row["data"] for row in rows) == in_order(
        only(row, *fields) for row in web.sites.app.truth()["items"]
    )


async def test_a_crawl_of_a_maze_ends_and_says_why(web: PracticeWeb, run: Run) -> None:
    found = await run("rooms")

    reasons = " ".join(found.report.caveats.warnings)
    assert found.report.state is JobState.COMPLETE
    assert found.data == in_order(
        only(room, "title", "about") for room in web.sites.maze.truth()["rooms"]
    )
    assert "/maze/calendar/{n}/{n} are followed no further: 20 in a row" in reasons
    assert "/maze/corridor/left/right/left/left" in reasons
    assert "parameters of" in reasons
    assert web.tally.requests < 100


async def test_a_spider_of_scrapy_is_taken_over_as_it_is(
    web: PracticeWeb, clock: VirtualClock, tmp_path: Path
) -> None:
    spider = f"{EXAMPLES / 'quotes_spider.py'}:QuotesSpider"
    async with Orchestrator(home=tmp_path, clock=clock) as longline:
        report = await longline.execute(spider, {"set": {"base_url": web.url}})
        rows = await longline.store.records.list(RecordQuery(source="quotes-spider"))

    truth = web.sites.quotes.truth()["quotes"]
    assert report.state is JobState.COMPLETE
    assert sorted(row["data"]["author"] for row in rows) == sorted(row["author"] for row in truth)


# ---------------------------------------------------------------- all of them


def written() -> dict[str, Any]:
    """Return the examples that are sources; others have rules and tasks."""
    files = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in EXAMPLES.glob("*.yaml")}
    return {name: one for name, one in files.items() if "manifest" in one}


def said(kind: str, *names: str) -> set[Any]:
    """Return what the examples of a kind say at these places, endpoint by endpoint."""
    tops = [one for one in written().values() if one["manifest"] == kind]
    places = [*tops, *(end for one in tops for end in one.get("endpoints", {}).values())]
    return {place[names[0]][names[1]] for place in places if isinstance(place.get(names[0]), dict)}


def test_every_example_is_named_after_its_file_and_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text("utf-8")

    assert {name for name, one in written().items() if one["name"] != name} == set()
    assert {name for name in written() if f"({name}.yaml)" not in listed} == set()
    assert len(written()) >= 10


def test_every_kind_of_pagination_and_proof_is_shown() -> None:
    # A text alone is the short form of the link to the next page.
    short = {"next" for one in written().values() if isinstance(one.get("pages"), str)}

    assert said("api", "pagination", "kind") == kinds_of(ApiPagination)
    assert said("html", "pages", "kind") | short == kinds_of(HtmlPagination)
    assert said("api", "auth", "kind") | said("html", "auth", "kind") == kinds_of(Auth)


def test_every_response_handler_is_shown() -> None:
    ends = [end for one in written().values() for end in one.get("endpoints", {}).values()]
    done = {handler["do"] for end in ends for handler in end.get("handlers", [])}

    assert done == set(get_args(Action))


def kinds_of(union: Any) -> set[str]:
    """Return the `kind` of each member of a union."""
    members = get_args(get_args(union)[0])
    return {one.model_fields["kind"].default for one in members}
