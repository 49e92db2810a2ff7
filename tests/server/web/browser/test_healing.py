"""What an operator does in the morning: see what is wrong, see why, retry, and see it healed."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from longline.sandbox.web import PracticeWeb, WebOptions
from tests.server.web.browser.conftest import OpenVisitor
from tests.server.web.browser.served import Served

pytestmark = [pytest.mark.real_time, pytest.mark.asyncio(loop_scope="session")]

LOTS = """
manifest: html
name: lots
rate: unlimited
start: {url}/redesign/never/
items: .lot a@href
key: {{url: 'lot/(\\d+)'}}
fields: {{title: .title}}
"""
JOB = "{source: sources/lots.yaml, retry: {attempts: 1}}"  # so that a fault fails its item


def write_source(served: Served, web: PracticeWeb) -> None:
    folder = served.folder / "sources"
    folder.mkdir()
    (folder / "lots.yaml").write_text(LOTS.format(url=web.url))
    (folder / "morning.yaml").write_text(JOB.replace("sources/", f"{folder}/"))


async def test_what_is_wrong_is_seen_retried_and_healed(empty: Served, visit: OpenVisitor) -> None:
    # With this seed the list is sound, and two of its pages respond with 500 once.
    async with PracticeWeb(WebOptions(faults=0.12, seed=185)) as web:
        write_source(empty, web)
        me = await visit(empty)
        await me.go("/sources/morning")
        await me.click(me.button("Run now"))

        await me.go("/")
        await expect(me.page.get_by_role("heading", level=1)).to_contain_text("needs you")
        await me.click(me.link("See why"))
        await me.sees("returned 500")
        await me.click(me.button("Retry failed items"))
        await me.sees(re.compile("25 of 25 items"))

        await me.go("/")
        await expect(me.page.get_by_role("heading", level=1)).to_have_text("All is well")
