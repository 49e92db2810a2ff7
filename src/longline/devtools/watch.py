"""Make a manifest that watches a page: what a selector finds there now, or a proposed one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic_core import PydanticCustomError

from longline.config.job_spec import make_spec
from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.core.model import Usage
from longline.devtools.propose.places import source_name
from longline.devtools.propose.proposal import manifest_text
from longline.devtools.propose.proposer import Proposer, Transport
from longline.devtools.session import NO_SOURCE, open_page_chain
from longline.http.messages import Page, Request
from longline.sources.html.places import check_selector, split_selector

_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)", re.DOTALL)
_LAST_WORD = re.compile(r"([A-Za-z_][\w-]*)\W*$")
_MOST_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class WatchedPage:
    """What is watched: the manifest, what it finds now, and what is in doubt about it."""

    name: str
    manifest: str
    found: int
    samples: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PageToWatch:
    """What `longline watch` is asked for.

    `selections` are CSS selectors, or NAME=SELECTOR; without one, a manifest is proposed. `ignored`
    are fields whose changes do not matter.
    """

    url: str
    selections: Sequence[str] = ()
    ignored: Sequence[str] = ()
    name: str | None = None
    transport: Transport = "http"
    ignore_robots: Sequence[str] = ()


async def watch_page(settings: Settings, wanted: PageToWatch) -> WatchedPage:
    """Fetch the page within the limits of a home; return a manifest that watches it.

    Raises:
        FetchError: the page cannot be fetched.
        UnexpectedShape: no manifest can be proposed for it.
        BadOption: a selector is invalid or finds nothing, or a field to ignore does not exist.
    """
    source_name(wanted.url, wanted.name)  # checked before a request is sent
    spec = make_spec({"source": NO_SOURCE, "ignore_robots": tuple(wanted.ignore_robots)})
    clock = SystemClock()
    async with open_page_chain(settings, spec, clock, transport=wanted.transport) as chain:
        if wanted.selections:
            is_rendered = wanted.transport == "browser"
            page = await chain(Request(wanted.url, is_rendered=is_rendered), Usage())
            return _selected(page, wanted)
        proposer = Proposer(chain, wanted.url, wanted.name, clock=clock, transport=wanted.transport)
        proposal = await proposer.best(await proposer.survey())
    _check_ignored(wanted, [one.name for one in proposal.all_fields])
    text = manifest_text(proposal)
    if wanted.ignored:
        text += yaml.safe_dump({"volatile": list(wanted.ignored)}, default_flow_style=None)
    shown = [next((str(v) for v in one.values() if v), "") for one in proposal.records]
    return WatchedPage(
        proposal.name,
        text,
        len(proposal.records),
        tuple(shown[:_MOST_SAMPLES]),
        tuple(one.text for one in proposal.warnings),
    )


def _selected(page: Page, wanted: PageToWatch) -> WatchedPage:
    """Return a manifest of what the selectors find on a page."""
    fields: dict[str, str] = {}
    texts: dict[str, list[str]] = {}
    for selection in wanted.selections:
        name, css = _parse_selection(selection, fields)
        fields[name] = css
        texts[name] = _texts_at(page, css)
    _check_ignored(wanted, fields)
    body: dict[str, Any] = {
        "manifest": "html",
        "name": source_name(wanted.url, wanted.name),
        "start": wanted.url,
    }
    if wanted.transport != "http":
        body["transport"] = wanted.transport
    several = [name for name, found in texts.items() if len(found) > 1]
    if several and len(fields) > 1:
        count, css = len(texts[several[0]]), fields[several[0]]
        problem = f"{css!r} finds {count} elements; with several selectors, each must find one"
        raise BadOption("--select", problem)
    if several:
        # Each element is a record that its content identifies, so their order does not matter.
        (name,) = several
        css, attribute = split_selector(fields[name])
        body["items"] = {"elements": css}
        body["fields"] = {name: {"css": f"@{attribute or 'text'}", "required": True}}
    else:
        body["fields"] = {name: {"css": css, "required": True} for name, css in fields.items()}
    if wanted.ignored:
        body["volatile"] = list(wanted.ignored)
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=1000)
    found = [value for one in texts.values() for value in one]
    header = f"# Written by `longline watch {wanted.url}`; change what does not fit.\n"
    return WatchedPage(body["name"], header + text, len(found), tuple(found[:_MOST_SAMPLES]))


def _parse_selection(selection: str, known: dict[str, str]) -> tuple[str, str]:
    """Return the name of a field and its selector."""
    if (named := _NAMED.fullmatch(selection)) is not None:
        name, css = named[1], named[2]
    else:
        css = selection
        word = _LAST_WORD.search(split_selector(css)[0])
        name = word[1].replace("-", "_").lower() if word else "text"
    if name in known:
        raise BadOption("--select", f"two fields are named {name}; write NAME={css}")
    return name, css


def _texts_at(page: Page, css: str) -> list[str]:
    """Return what a selector finds; it must find something, and something that can change."""
    try:
        check_selector(css)
    except PydanticCustomError as error:
        raise BadOption("--select", error.message()) from None
    selector, attribute = split_selector(css)
    nodes = page.css(selector)
    if not nodes:
        advice = "check it with `longline shell URL`, or use --transport browser"
        raise BadOption("--select", f"{css!r} finds nothing on {page.url}; {advice}")
    if attribute in (None, "text"):
        texts = [" ".join(node.text().split()) for node in nodes]
    elif attribute == "html":
        texts = [node.html or "" for node in nodes]
    else:
        texts = [node.attributes.get(attribute) or "" for node in nodes]
    if not all(texts):
        empty = sum(not one for one in texts)
        problem = f"{css!r} finds {len(texts)} elements, of which {empty} have no content"
        raise BadOption("--select", f"{problem}; use a more specific selector")
    return texts


def _check_ignored(wanted: PageToWatch, fields: Sequence[str] | dict[str, str]) -> None:
    for name in wanted.ignored:
        if name not in fields:
            raise BadOption("--ignore", f"there is no field {name!r}; found: {', '.join(fields)}")
