"""A newcomer without a terminal: from the printed link to the first exported CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from playwright.async_api import expect

from longline.sandbox.web import PracticeWeb
from tests.server.web.browser.conftest import OpenVisitor
from tests.server.web.browser.served import Served

pytestmark = [pytest.mark.real_time, pytest.mark.asyncio(loop_scope="session")]


async def test_a_newcomer_exports_a_csv_in_under_15_clicks(
    empty: Served, visit: OpenVisitor, tmp_path: Path
) -> None:
    async with PracticeWeb() as web:
        me = await visit(empty)

        await me.click(me.link("New source from a URL"))
        await me.page.get_by_label("Address").fill(f"{web.url}/quotes/")
        await me.click(me.button("Propose"))
        await me.sees("Records that it gave")
        await me.click(me.button("Save source"))
        await me.click(me.button("Check one item"))
        await me.sees("would be stored")
        await me.click(me.button("Run now"))
        # The page follows the run by itself, to its end.
        await expect(me.link("Download CSV")).to_be_visible()
        await me.click(me.link("See records"))
        await expect(me.page.get_by_role("row")).not_to_have_count(0)
        await me.page.go_back()
        async with me.page.expect_download() as download:
            await me.click(me.link("Download CSV"))
        await (await download.value).save_as(tmp_path / "first.csv")

        truth = web.sites.quotes.truth()["quotes"]

    with (tmp_path / "first.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(truth)
    assert me.clicks < 15
