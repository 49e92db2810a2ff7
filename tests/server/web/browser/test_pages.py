"""Every page in a real browser: no error, nothing from elsewhere, usable by everyone."""

from __future__ import annotations

import pytest

from tests.server.web.browser.conftest import OpenVisitor
from tests.server.web.browser.served import Served
from tests.server.web.browser.tour import FormTour, Tour, problems_of

pytestmark = [pytest.mark.real_time, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.timeout(300)
async def test_every_page_is_accessible_and_without_errors(
    demo: Served, visit: OpenVisitor
) -> None:
    tour = Tour(await visit(demo))

    found = [one async for _ in tour.pages() for one in await problems_of(tour.visitor.page)]

    assert found == []
    assert tour.missed == set()


@pytest.mark.timeout(300)
async def test_every_form_of_every_page_works(demo: Served, visit: OpenVisitor) -> None:
    me = await visit(demo)
    # A page that follows the home would replace its forms while they are used.
    await me.page.route("**/live/**", lambda route: route.fulfill(status=204))
    forms = FormTour(Tour(me))

    async for _ in forms.tour.pages():
        await forms.use_all()

    assert forms.failures == []
    assert forms.missed == set()
