"""Elements and links that share a key, or have none: named as before after a crash, and told."""

from __future__ import annotations

import re

from longline.sources.base import Visit
from tests.sources.manifested import SITE, source_of
from tests.sources.scripted import ScriptedWeb, discovered, notes_on
from tests.virtual import VirtualClock


async def test_elements_that_share_a_key_have_the_same_names_after_a_crash(
    clock: VirtualClock,
) -> None:
    source = source_of(f"""
        start: {SITE}/1
        items: {{elements: .row}}
        pages: a.next
        key: "@data-id"
        fields: {{text: b}}
        """)
    texts = ["first", "second", "first"]
    row = '<p class="row" data-id="a"><b>{}</b></p><a class="next" href="/{}">next</a>'
    script = {f"{SITE}/{n}": row.format(text, n + 1) for n, text in enumerate(texts, 1)}
    script[f"{SITE}/4"] = ""
    whole, cursors = await discovered(source, ScriptedWeb(script), clock)

    rest, _ = await discovered(source, ScriptedWeb(script), clock, cursors[0].value)

    keys = [item.key for item in whole]
    assert len(set(keys)) == 2
    assert [item.key for item in rest] == keys[1:]


async def test_elements_without_a_link_and_links_with_a_shared_key_are_noted(
    clock: VirtualClock,
) -> None:
    text = f"""
        start: {SITE}/list
        items: {{elements: .row, link: a@href}}
        key: {{url: "/(p)/"}}
        """
    rows = "".join(f'<p class="row"><a href="/p/{n}">{n}</a></p>' for n in range(3))
    web = ScriptedWeb({f"{SITE}/list": f'{rows}<p class="row">none</p>'})

    visit = Visit(web, clock)
    _ = [one async for one in source_of(text).discover(visit)]
    notes = notes_on(visit, "discovery")

    assert any(re.search(r"\b1\b.*link", note) for note in notes)
    assert any(re.search(r"\b2\b.*key", note) for note in notes)
