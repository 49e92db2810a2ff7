"""A public site that leads a run to private hosts and plants passwords in its links."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from longline import wiring
from longline.core.errors import FailureKind
from longline.core.model import ItemState
from longline.http.address_policy import Address, AddressPolicy, Scope, scope_of
from longline.orchestrator import Orchestrator
from tests.scripted_site import ScriptedSite
from tests.sources.manifested import linked
from tests.virtual import VirtualClock

PUBLIC = "127.0.0.2"
PASSWORD = "planted-pass-word"  # noqa: S105  # what a site writes into its links
SHOP = """
manifest: html
name: shop
rate: unlimited
parameters: {{base_url: {{about: The shop.}}}}
start: "{{base_url}}/list"
items: h3 a
key: {{url: "/p/(.+)"}}
fields: {{title: h1, link: {{css: a@href, type: url}}}}
{more}
"""


def scope(address: Address) -> Scope:
    """Return the scope of an address, with one of this machine for the internet."""
    return Scope.PUBLIC if str(address) == PUBLIC else scope_of(address)


@pytest.fixture(autouse=True)
def _an_internet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "AddressPolicy", partial(AddressPolicy, scope=scope))


@pytest.fixture
async def private() -> AsyncIterator[ScriptedSite]:
    async with ScriptedSite() as private:
        private.says("/p/inside", "<h1>Inside</h1>")
        yield private


@pytest.fixture
async def public(private: ScriptedSite) -> AsyncIterator[ScriptedSite]:
    async with ScriptedSite(PUBLIC) as public:
        inside = f"http://user:{PASSWORD}@127.0.0.1:{private.port}/p/inside"
        own = f"http://user:{PASSWORD}@{PUBLIC}:{public.port}"
        public.says("/list", linked("/p/1", "/p/2", inside, f"{own}/p/3", "/p/4"))
        public.says("/p/1", f"<h1>One</h1><a href='{own}/a'>x</a>")
        public.says("/p/2", status=302, headers={"Location": inside})
        public.says("/p/3", "<h1>Three</h1>")
        public.says("/p/4", status=302, headers={"Location": f"{own}/p/3"})
        yield public


async def run(
    public: ScriptedSite, folder: Path, clock: VirtualClock, more: str = ""
) -> dict[str, ItemState]:
    """Run the source with an archive; return the states of its items by key."""
    path = folder / "shop.yaml"
    path.write_text(SHOP.format(more=more))
    options = {"base_url": public.url}
    async with Orchestrator(
        str(path), options, home=folder / "home", clock=clock, archive=True
    ) as orchestrator:
        report = await orchestrator.execute()
        finished = await orchestrator.store.queue.finished(report.job)
        for row in finished:
            if row["state"] == ItemState.FAILED:
                assert row["kind"] == FailureKind.REFUSED
    return {row["key"]: row["state"] for row in finished}


async def test_items_at_private_addresses_fail_and_the_others_are_stored(
    public: ScriptedSite, private: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    states = await run(public, tmp_path, clock)

    assert not private.hits
    assert states == {
        "1": ItemState.STORED,
        "2": ItemState.FAILED,
        "inside": ItemState.FAILED,
        "3": ItemState.STORED,
        "4": ItemState.STORED,
    }


async def test_a_manifest_may_list_private_hosts(
    public: ScriptedSite, private: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    states = await run(public, tmp_path, clock, "private_hosts: [127.0.0.1]")

    assert set(states.values()) == {ItemState.STORED}
    assert private.hits["/p/inside"]


async def test_planted_passwords_are_neither_sent_nor_kept(
    public: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    await run(public, tmp_path, clock)

    kept = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    # The bodies of pages are archived as they came; all else is ours.
    written = [path.read_bytes() for path in kept if path.suffix != ".gz"]
    records = [
        record
        for path in kept
        if path.suffix == ".gz"
        for record in gzip.decompress(path.read_bytes()).split(b"WARC/1.1\r\n")
        if b"/list" not in record and b"/p/1\r\n" not in record
    ]
    assert len(records) > 4
    assert not [text for text in [*written, *records] if PASSWORD.encode() in text]
    assert not public.credentials
