"""The pages here are written by us from what is known of the real ones; none was copied."""

from __future__ import annotations

import pytest

from longline.core.errors import Gone, SkipItem, UnexpectedShape
from longline.http.messages import Page
from longline.sources.base import Visit
from longline.sources.n8n.source import N8n
from tests.sources.scripted import ScriptedWeb, collect, notes_on, unexplained
from tests.sources.templates import ITEM, PAGE, SITE
from tests.virtual import VirtualClock

OPTIONS = {"detail": "pages", "transcripts": False}
HTML = """<html><head>
<meta name="description" content="Sends a letter.">
<meta property="og:title" content="Send a letter | n8n workflow template">
<meta property="og:image" content="https://n8n.io/og/42.png">
</head><body><div id="__nuxt">
<nav><a href="/integrations/not-this/">Menu</a></nav>
<div class="CookieConsent">We value your privacy <a href="https://ads.example">Ads</a></div>
<div role="dialog">Preferences</div>
<section><h1>Send a letter</h1> by <a href="/creators/ann/">Ann B.</a>
<a href="/integrations/gmail/">Gmail</a> <a href="https://n8n.io/integrations/webhook/">Hook</a>
<a href="/integrations/gmail/">Gmail again</a></section>
<section><h2>How it works</h2><p>It sends a letter.</p><img src="/shot.png" alt="shot">
<iframe src="https://www.youtube.com/embed/dQw4w9WgXcQ"></iframe></section>
<section class="section-creator-workflows"><h2>More templates by Ann</h2>
<section><a href="/creators/bob/">Bob</a></section>
<a href="https://youtu.be/aaaaaaaaaaa">Other</a></section>
<section><h2>There is nothing you can't automate</h2><img src="/advert.png"></section>
</div></body></html>"""


async def read(html: str, clock: VirtualClock) -> tuple[dict[str, object], Visit]:
    return await collect(N8n.with_options(OPTIONS), ScriptedWeb({PAGE: html}), ITEM, clock)


async def test_a_page_tells_what_it_can(clock: VirtualClock) -> None:
    data, visit = await read(HTML, clock)

    assert data["id"] == 42
    assert data["title"] == "Send a letter"
    assert data["page_title"] == "Send a letter"
    assert data["summary"] == "Sends a letter."
    assert data["author"] == {"username": "ann", "name": "Ann B."}
    assert data["integrations"] == ["gmail", "webhook"]
    assert data["workflow"] is None
    assert notes_on(visit, "workflow")
    assert unexplained(data, visit) == []
    N8n.Record.model_validate(data)


async def test_only_what_is_about_this_template_is_content(clock: VirtualClock) -> None:
    data, _visit = await read(HTML, clock)

    assert "It sends a letter." in str(data["description_text"])
    assert "privacy" not in str(data["description_text"])
    assert "Preferences" not in str(data["description_text"])
    assert "More templates" not in str(data["description_text"])
    assert data["headings"] == [
        {"level": 1, "text": "Send a letter"},
        {"level": 2, "text": "How it works"},
    ]
    assert data["links"] == ["https://n8n.io/integrations/webhook/"]


async def test_images_and_videos_of_a_page_are_found(clock: VirtualClock) -> None:
    data, _visit = await read(HTML, clock)

    assert data["videos"] == [
        {
            "id": "dQw4w9WgXcQ",
            "url": "https://www.youtube.com/watch?v=dQw4w9WgXcQ",
            "found_in": ["page"],
        }
    ]
    assert data["images"] == [
        {"url": f"{SITE}/shot.png", "alt": "shot", "found_in": ["page"]},
        {"url": "https://n8n.io/og/42.png", "alt": "", "found_in": ["og:image"]},
    ]


async def test_one_request_serves_all_layers(clock: VirtualClock) -> None:
    web = ScriptedWeb({PAGE: HTML})

    await collect(N8n.with_options(OPTIONS), web, ITEM, clock)

    assert web.addresses == [PAGE]


async def test_a_bare_page_has_its_gaps_explained(clock: VirtualClock) -> None:
    data, visit = await read("<h1>Only a title</h1>", clock)

    assert data["title"] == "Only a title"
    assert data["author"] is None
    assert unexplained(data, visit) == []


async def test_a_page_without_heading_has_the_title_it_shares(clock: VirtualClock) -> None:
    data, _visit = await read(HTML.replace("h1", "p"), clock)

    assert data["title"] == "Send a letter"


async def test_a_page_without_any_title_is_refused(clock: VirtualClock) -> None:
    with pytest.raises(UnexpectedShape, match=r"<h1>.*og:title"):
        await read("<p>Sorry</p>", clock)


async def test_a_page_that_leads_elsewhere_is_skipped(clock: VirtualClock) -> None:
    moved = Page(f"{SITE}/workflows/", 200, {}, HTML.encode())
    web = ScriptedWeb({PAGE: moved})

    with pytest.raises(SkipItem, match=f"{PAGE}.*{SITE}/workflows/$"):
        await collect(N8n.with_options(OPTIONS), web, ITEM, clock)


async def test_a_page_that_is_gone_is_gone(clock: VirtualClock) -> None:
    with pytest.raises(Gone):
        await collect(N8n.with_options(OPTIONS), ScriptedWeb({}), ITEM, clock)


@pytest.mark.parametrize(
    ("options", "is_declared"),
    [({}, set()), (OPTIONS, {"workflow", "transcripts"}), ({"inventory": "search"}, {"slug"})],
)
def test_the_source_declares_what_its_settings_leave_empty(
    options: dict[str, object], is_declared: set[str]
) -> None:
    declared = N8n.with_options(options).usually_empty

    assert declared & {"workflow", "transcripts", "slug"} == is_declared
    assert "updated_at" in declared
