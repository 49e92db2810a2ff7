"""Response handlers and rates of endpoints; large responses."""

from __future__ import annotations

import asyncio
import re
import threading
from itertools import pairwise
from typing import Any

import pytest

from longline.core.errors import Deferred, FailureKind, Refused, ServerFailed, SkipItem
from longline.core.json import read_json
from longline.core.model import OutcomeAction, Usage
from longline.http.errors import Rejected
from longline.http.messages import Page, Request
from longline.sources.api.requests import ApiRequest, EndpointClient
from longline.sources.base import Visit
from tests.scripted_site import ScriptedSite
from tests.sources.api_bench import ApiSite, Bench
from tests.sources.scripted import ScriptedWeb
from tests.virtual import EPOCH, VirtualClock

GOOD = {"items": [{"id": 1}]}
BUSY = {"error": {"code": "busy"}, "items": []}


def listing(rule: str, more: str = "") -> str:
    return f"""
may_be_empty: true
endpoints:
  products:
    path: /products
    records: items
    key: id
    handlers: [{rule}]
    {more}
"""


IF_BUSY = "{when: {body: \"error.code == 'busy'\"}, do: "


async def found(bench: Bench, text: str) -> list[str]:
    return [item.key for item in await bench.find(text)]


# ---------------------------------------------------------------- rules for lists


async def test_a_response_with_an_error_inside_is_requested_again(
    api: ApiSite, bench: Bench, clock: VirtualClock
) -> None:
    api.says("/products", BUSY, BUSY, GOOD)

    assert await found(bench, listing(IF_BUSY + "retry}")) == ["1"]
    assert len(api.asked) == 3
    assert clock.now() - EPOCH == pytest.approx(1 + 2, abs=0.5)
    assert bench.usage.retries == 2
    steps = [one.step for one in bench.usage.failures]
    assert [re.findall(r"\d+ s", step) for step in steps] == [["1 s"], ["2 s"]]


async def test_a_rule_that_gives_up_fails_with_its_reason(api: ApiSite, bench: Bench) -> None:
    api.says("/products", BUSY)

    with pytest.raises(Rejected, match=r"the shop sleeps.*3") as raised:
        await found(bench, listing(IF_BUSY + "retry, reason: the shop sleeps}"))

    assert raised.value.kind is FailureKind.SERVER
    assert len(api.asked) == 3


async def test_a_long_wait_is_left_to_the_queue(
    api: ApiSite, bench: Bench, clock: VirtualClock
) -> None:
    api.says("/products", BUSY)

    with pytest.raises(Deferred) as raised:
        await found(bench, listing(IF_BUSY + "wait, after: 15m}"))

    assert raised.value.until == pytest.approx(clock.now() + 900, abs=1)
    assert (raised.value.kind, raised.value.is_for_domain) == (FailureKind.OVERLOAD, True)


async def test_a_list_that_is_put_off_again_and_again_is_given_up(
    api: ApiSite, bench: Bench, clock: VirtualClock
) -> None:
    api.says("/products", BUSY)
    _, collector = bench.open(listing(IF_BUSY + "wait, after: 1m, attempts: 2}"))
    with pytest.raises(Deferred):
        await bench.discover(collector)
    await clock.sleep(60)

    with pytest.raises(Rejected) as given_up:
        await bench.discover(collector)

    assert given_up.value.kind is FailureKind.OVERLOAD
    assert re.search(r"\b2\b", given_up.value.reason)  # attempts


async def test_a_header_may_say_how_long_to_wait(
    api: ApiSite, bench: Bench, clock: VirtualClock
) -> None:
    reset = {"X-Reset": str(int(EPOCH) + 20)}
    api.says("/products", (403, {"error": {"code": "busy"}}, reset), GOOD)
    rule = "{when: {status: 403, header: {x-reset: '^[0-9]+$'}}, do: wait, after_header: X-Reset}"

    assert await found(bench, listing(rule)) == ["1"]
    assert clock.now() == pytest.approx(EPOCH + 20, abs=1)


async def test_retry_after_is_heeded_by_a_rule_without_a_time(
    api: ApiSite, bench: Bench, clock: VirtualClock
) -> None:
    api.says("/products", (409, {}, {"Retry-After": "12"}), GOOD)

    assert await found(bench, listing("{when: {status: 409}, do: retry}")) == ["1"]
    assert clock.now() == pytest.approx(EPOCH + 12, abs=1)


async def test_a_list_may_be_skipped(api: ApiSite, bench: Bench) -> None:
    api.says("/products", (409, {}))

    assert await found(bench, listing("{when: {status: 409}, do: skip, reason: closed}")) == []
    assert bench.notes == [f"products: {api.url}/products: closed"]


async def test_a_handler_may_fail_a_successful_response(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": [], "warning": "trial over"})

    with pytest.raises(Rejected, match=r"'warning'.* fail"):
        await found(bench, listing("{when: {body: warning}, do: fail}"))


async def test_a_handler_may_accept_an_error_status(api: ApiSite, bench: Bench) -> None:
    api.says("/products", (404, {"items": []}))

    assert await found(bench, listing("{when: {status: [404, 410]}, do: accept}")) == []


async def test_the_first_matching_handler_applies(api: ApiSite, bench: Bench) -> None:
    api.says("/products", (409, GOOD))
    rules = "{when: {status: 409, body: nothing}, do: fail}, {when: {status: 4xx}, do: accept}"

    assert await found(bench, listing(rules)) == ["1"]


async def test_a_status_without_a_handler_has_its_usual_meaning(api: ApiSite, bench: Bench) -> None:
    api.says("/products", (403, {}))

    with pytest.raises(Refused):
        await found(bench, listing("{when: {status: 403, body: quota}, do: wait}"))

    assert len(api.asked) == 1


async def test_a_failure_that_may_pass_is_retried_though_a_rule_looked_at_it(
    api: ApiSite, bench: Bench
) -> None:
    api.says("/products", (500, {}), (500, {}), GOOD)
    rule = "{when: {status: 5xx, body: quota}, do: fail}"

    assert await found(bench, listing(rule)) == ["1"]


async def test_a_failure_that_does_not_pass_is_what_its_status_says(
    api: ApiSite, bench: Bench
) -> None:
    api.says("/products", (500, {}))

    with pytest.raises(ServerFailed):
        await found(bench, listing("{when: {status: 5xx, body: quota}, do: fail}"))

    assert len(api.asked) == 3


# ---------------------------------------------------------------- rules for details


async def test_a_rule_may_skip_an_item_by_its_detail(api: ApiSite, bench: Bench) -> None:
    api.says("/products", GOOD)
    api.says("/products/1", {"state": "draft"})
    detail = """detail: product
  product:
    path: /products/{parent.id}
    handlers: [{when: {body: "state == 'draft'"}, do: skip, reason: a draft}]
"""
    extractions = await bench.run(listing("", detail))

    assert extractions[0].action is OutcomeAction.SKIP
    assert "a draft" in str(extractions[0].reason)


async def test_a_long_wait_for_a_detail_parks_the_item(api: ApiSite, bench: Bench) -> None:
    api.says("/products", GOOD)
    api.says("/products/1", (409, {}))
    detail = """detail: product
  product: {path: '/products/{parent.id}', handlers: [{when: {status: 409}, do: retry, after: 1h}]}
"""
    extractions = await bench.run(listing("", detail))

    assert extractions[0].action is OutcomeAction.DEFER
    assert not extractions[0].is_for_domain


async def test_what_is_skipped_below_a_record_is_empty_with_a_note(
    api: ApiSite, bench: Bench
) -> None:
    api.says("/products", GOOD)
    api.says("/sizes/1", (409, {}))
    child = """embed: {sizes: sizes}
  sizes: {path: '/sizes/{parent.id}', handlers: [{when: {status: 409}, do: skip, reason: none}]}
"""
    extractions = await bench.run(listing("", child))

    assert extractions[0].record is not None
    assert extractions[0].record.data["sizes"] is None
    assert [note.field for note in extractions[0].record.notes] == ["sizes"]


# ---------------------------------------------------------------- a new proof


class RenewingVisit(Visit):
    """A visit whose chain obtains a new proof when asked to."""

    renewals = 0

    async def fetch(self, url: str, *, renew: bool = False, **values: Any) -> Page:
        if renew:
            await self.clock.sleep(5)  # it takes a while, and others ask meanwhile
            self.renewals += 1
        return await super().fetch(url, **values)


ENDED = Page("http://a.test/", 200, {}, b'{"error": "token expired"}')
FINE = Page("http://a.test/", 200, {}, b'{"items": []}')


def asker(bench: Bench) -> EndpointClient:
    auth = """
auth:
  {kind: oauth2, token_url: https://a.test/t, client_id: a, client_secret: env:S, hosts: a.test}
"""
    source, _ = bench.open(auth + listing("{when: {body: error}, do: refresh}"))
    return EndpointClient(source.manifest.endpoints)


async def test_credentials_that_a_response_rejects_are_renewed_once(
    bench: Bench, clock: VirtualClock
) -> None:
    visit = RenewingVisit(ScriptedWeb({"http://a.test/": [ENDED, FINE]}), clock)

    _, body = await asker(bench).request(visit, "products", ApiRequest("http://a.test/"))

    assert body == {"items": []}
    assert visit.renewals == 1


class EndedWeb(ScriptedWeb):
    """Takes a second for each answer, and calls the proof ended until it was renewed."""

    def __init__(self) -> None:
        super().__init__({})
        self.visit: RenewingVisit | None = None

    async def __call__(self, request: Request, usage: Usage) -> Page:
        await asyncio.sleep(1)
        del request, usage
        return FINE if self.visit and self.visit.renewals else ENDED


async def test_many_who_used_the_same_proof_renew_it_once(
    bench: Bench, clock: VirtualClock
) -> None:
    asking, web = asker(bench), EndedWeb()
    web.visit = RenewingVisit(web, clock)

    async with asyncio.TaskGroup() as group:
        for number in range(3):
            call = ApiRequest(f"http://a.test/{number}")
            group.create_task(asking.request(web.visit, "products", call))

    assert web.visit.renewals == 1


async def test_a_new_proof_that_does_not_help_is_a_failure(
    bench: Bench, clock: VirtualClock
) -> None:
    visit = RenewingVisit(ScriptedWeb({"http://a.test/": ENDED}), clock)

    with pytest.raises(Rejected):
        await asker(bench).request(visit, "products", ApiRequest("http://a.test/"))

    assert visit.renewals == 1


# ---------------------------------------------------------------- pace and rest


async def test_the_rate_of_an_endpoint_is_respected(
    api: ApiSite, bench: Bench, site: ScriptedSite
) -> None:
    api.says("/products", {"items": [{"id": n} for n in range(4)]})
    for number in range(4):
        api.says(f"/sizes/{number}", [{"id": number}])
    child = "\n  sizes: {parent: products, path: '/sizes/{parent.id}', key: id, rate: 0.5}"

    await bench.find(listing("", "collect: false" + child))

    moments = [moment for path, moment in site.log if path.startswith("/sizes")]
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert gaps == pytest.approx([2, 2, 2], abs=0.1)


async def test_while_a_source_rests_none_of_its_requests_go(
    bench: Bench, clock: VirtualClock
) -> None:
    source, _ = bench.open(listing("{when: {status: 420}, do: wait, after: 20}"))
    asking = EndpointClient(source.manifest.endpoints)
    tired = Page("http://a.test/1", 420, {}, b"{}")
    visit = Visit(ScriptedWeb({"http://a.test/1": [tired, FINE], "http://a.test/2": FINE}), clock)

    async with asyncio.TaskGroup() as group:
        group.create_task(asking.request(visit, "products", ApiRequest("http://a.test/1")))
        await clock.sleep(1)
        await asking.request(visit, "products", ApiRequest("http://a.test/2"))
        waited = clock.now() - EPOCH

    assert waited == pytest.approx(20)


async def test_skipping_is_not_an_error_of_the_list(bench: Bench, clock: VirtualClock) -> None:
    source, _ = bench.open(listing("{when: {status: 409}, do: skip}"))
    page = Page("http://a.test/", 409, {}, b"{}")
    visit = Visit(ScriptedWeb({"http://a.test/": page}), clock)

    with pytest.raises(SkipItem, match=r"409.* skip"):
        await EndpointClient(source.manifest.endpoints).request(
            visit, "products", ApiRequest("http://a.test/")
        )


MANIFEST = """
endpoints:
  items: {path: /items, records: items, key: id}
"""


@pytest.mark.parametrize(("count", "is_apart"), [(10, False), (100_000, True)])
async def test_only_a_large_response_is_parsed_in_a_thread(
    site: ScriptedSite,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    is_apart: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    threads: set[int] = set()

    def read(text: Any) -> Any:
        threads.add(threading.get_ident())
        return read_json(text)

    monkeypatch.setattr("longline.http.messages.read_json", read)
    records = ",".join(f'{{"id":{number}}}' for number in range(count))
    site.says("/items", f'{{"items":[{records}]}}')
    bench = Bench(site, clock)

    items = await bench.find(MANIFEST)

    await bench.closing.aclose()
    assert len(items) == count
    assert (threads != {threading.get_ident()}) == is_apart
