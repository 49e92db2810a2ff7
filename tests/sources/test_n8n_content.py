"""Content and media of n8n templates, from the API and from pages written for this test."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.core.errors import Gone, SkipItem, UnexpectedShape
from longline.http.messages import Page
from longline.sources.base import Visit
from longline.sources.n8n.content import find_videos, read_markdown
from longline.sources.n8n.source import N8n
from tests.sources.scripted import ScriptedWeb, collect, notes_on, unexplained
from tests.sources.templates import FIRST, ITEM, PAGE, SITE, first_answer, node, sticky, workflow
from tests.virtual import VirtualClock

VIDEO = "dQw4w9WgXcQ"
QUIET = {"transcripts": False}


async def read(clock: VirtualClock, **changes: Any) -> tuple[dict[str, Any], Visit]:
    web = ScriptedWeb({FIRST: first_answer(**changes)})
    return await collect(N8n.with_options(QUIET), web, ITEM, clock)


# ---------------------------------------------------------------- videos


@pytest.mark.parametrize(
    "text",
    [
        f"https://www.youtube.com/watch?v={VIDEO}",
        f"https://youtube.com/watch?v={VIDEO}&t=10s",
        f"https://m.youtube.com/watch?app=desktop&v={VIDEO}",
        f"https://www.youtube.com/watch?list=PL1&amp;v={VIDEO}",
        f"www.youtube.com/watch?v={VIDEO}.",
        f"[see](https://youtu.be/{VIDEO}?si=abc)",
        f'<iframe src="//www.youtube.com/embed/{VIDEO}?rel=0"></iframe>',
        f"https://www.youtube-nocookie.com/embed/{VIDEO}",
        f"https://www.youtube.com/shorts/{VIDEO}",
        f"https://www.youtube.com/live/{VIDEO}?feature=share",
        f"https://www.youtube.com/v/{VIDEO}",
        f"@[youtube]({VIDEO})",
        f"![x](https://img.youtube.com/vi/{VIDEO}/sddefault.jpg)",
        f"https://i.ytimg.com/vi/{VIDEO}/hq720.jpg",
        f"https://i3.ytimg.com/vi_webp/{VIDEO}/0.webp",
    ],
)
def test_a_video_is_found_in_every_form(text: str) -> None:
    assert find_videos(f"Before {text} after") == [VIDEO]


@pytest.mark.parametrize(
    "text",
    [
        "https://www.youtube.com/@somebody",
        "https://www.youtube.com/channel/UCAdp-nOSH-jcrwXkLlUMyXQ",
        "https://www.youtube.com/c/SomeChannel",
        "https://www.youtube.com/playlist?list=PLabcdefghijk",
        "https://www.youtube.com/embed/videoseries?list=PL1",
        "https://www.youtube.com/embed/live_stream?channel=UC1",
        "https://www.youtube.com/watch?v=tooShort",
        "https://www.youtube.com/watch?v=muchTooLongForAnId",
        f"https://notyoutube.com/watch?v={VIDEO}",
        f"https://example.org/?v={VIDEO}",
        "@[youtube](VIDEO_ID)",
    ],
)
def test_what_is_no_video_is_not_taken_for_one(text: str) -> None:
    assert find_videos(text) == []


@given(st.text())
def test_any_text_can_be_searched(text: str) -> None:
    assert find_videos(text + f" youtu.be/{VIDEO} ")[-1] == VIDEO


# ---------------------------------------------------------------- texts


def test_markdown_and_html_are_read_together() -> None:
    reading = read_markdown(
        "# Title\n\nSome **bold** text with a [link](https://a.example/x).\nBare: "
        "https://b.example/y, and <a href='https://c.example'>html</a><br>new line\n\n"
        "```\n# not a heading\n```\n\n<script>alert(1)</script>\n"
        "<h2>Second  part</h2>\n\n[mail](mailto:a@b.example) [local](/x)"
    )

    assert reading.headings == [
        {"level": 1, "text": "Title"},
        {"level": 2, "text": "Second part"},
    ]
    assert reading.links == ["https://a.example/x", "https://c.example", "https://b.example/y"]
    assert "Some bold text with a link." in reading.text
    assert "html\nnew line" in reading.text
    assert "alert" not in reading.text


@given(st.text())
def test_any_text_can_be_read_as_markdown(text: str) -> None:
    assert isinstance(read_markdown(text).text, str)


async def test_sticky_notes_are_read_with_place_and_size(clock: VirtualClock) -> None:
    inner = workflow(node("A"), sticky("# Look\nhttps://a.example"))

    data, _visit = await read(clock, workflow=inner)

    assert data["sticky_notes"] == [
        {
            "name": "Sticky Note",
            "text": "# Look\nhttps://a.example",
            "position": [10, 20],
            "width": 300,
            "height": 200,
        }
    ]
    assert data["links"] == ["https://a.example"]


@pytest.mark.parametrize("parameters", [{}, None, {"content": {"odd": 1}}])
async def test_a_sticky_note_without_text_is_kept(parameters: Any, clock: VirtualClock) -> None:
    inner = workflow(node("A"), sticky("", parameters=parameters, position=None))

    data, _visit = await read(clock, workflow=inner)

    assert data["sticky_notes"][0]["text"] is None


async def test_a_description_of_images_only_has_no_words(clock: VirtualClock) -> None:
    data, visit = await read(clock, description="![x](https://a.example/1.png)")

    assert data["description_text"] == ""
    assert "images" in notes_on(visit, "description_text")[0]


async def test_a_text_without_end_does_not_stop_the_loop(clock: VirtualClock) -> None:
    endless = "<div>" * 1_000_000

    data, visit = await read(clock, description=endless)

    assert data["description"] == endless
    (note,) = notes_on(visit, "description_text")
    assert "50000" in note


@pytest.mark.parametrize("description", [None, {"en": "x"}])
async def test_a_missing_description_is_noted(description: Any, clock: VirtualClock) -> None:
    data, visit = await read(clock, description=description)

    assert data["description"] is None
    assert data["description_text"] is None
    assert unexplained(data, visit) == []


# ---------------------------------------------------------------- media


async def test_a_file_reference_is_resolved_by_the_attached_images(clock: VirtualClock) -> None:
    attached = [{"id": 7, "url": "https://files.example/7.png"}, {"id": 8}]

    data, visit = await read(
        clock, description="![shot](fileId:7) ![gone](fileId:9)", image=attached
    )

    assert data["images"] == [
        {
            "url": "https://files.example/7.png",
            "alt": "shot",
            "found_in": ["description", "attached"],
        }
    ]
    (note,) = notes_on(visit, "images")
    assert "fileId:9" in note


async def test_media_are_listed_once_with_every_place(clock: VirtualClock) -> None:
    picture = "![a](https://files.example/1.png)"
    inner = workflow(
        node("A"), sticky(f"@[youtube]({VIDEO}) {picture}"), sticky(f"https://youtu.be/{VIDEO}")
    )

    data, _visit = await read(
        clock,
        workflow=inner,
        description=f"{picture} <img src='/local.png'> https://youtu.be/{VIDEO} "
        "https://youtube.com/@channel ![no](data:image/png;base64,AAAA)",
    )

    assert data["videos"] == [
        {
            "id": VIDEO,
            "url": f"https://www.youtube.com/watch?v={VIDEO}",
            "found_in": ["description", "sticky note"],
        }
    ]
    assert [(image["url"], image["found_in"]) for image in data["images"]] == [
        ("https://files.example/1.png", ["description", "sticky note"]),
        (f"{SITE}/local.png", ["description"]),
    ]


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


async def read_page(html: str, clock: VirtualClock) -> tuple[dict[str, object], Visit]:
    return await collect(N8n.with_options(OPTIONS), ScriptedWeb({PAGE: html}), ITEM, clock)


async def test_a_page_has_title_author_and_integrations(clock: VirtualClock) -> None:
    data, visit = await read_page(HTML, clock)

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
    data, _visit = await read_page(HTML, clock)

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
    data, _visit = await read_page(HTML, clock)

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
    data, visit = await read_page("<h1>Only a title</h1>", clock)

    assert data["title"] == "Only a title"
    assert data["author"] is None
    assert unexplained(data, visit) == []


async def test_a_page_without_heading_has_the_title_it_shares(clock: VirtualClock) -> None:
    data, _visit = await read_page(HTML.replace("h1", "p"), clock)

    assert data["title"] == "Send a letter"


async def test_a_page_without_any_title_is_refused(clock: VirtualClock) -> None:
    with pytest.raises(UnexpectedShape, match=r"<h1>.*og:title"):
        await read_page("<p>Sorry</p>", clock)


async def test_a_page_that_leads_elsewhere_is_skipped(clock: VirtualClock) -> None:
    moved = Page(f"{SITE}/workflows/", 200, {}, HTML.encode())
    web = ScriptedWeb({PAGE: moved})

    with pytest.raises(SkipItem, match=f"{PAGE}.*{SITE}/workflows/$"):
        await collect(N8n.with_options(OPTIONS), web, ITEM, clock)


async def test_a_missing_page_is_gone(clock: VirtualClock) -> None:
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
