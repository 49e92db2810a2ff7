"""Layer 3 of a template: what explains it, in its description and on its sticky notes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from longline.core.errors import BadStatus, FetchError
from longline.http.messages import Page, without_userinfo
from longline.sources.catalogue.n8n.layers import STICKY_NOTE, TakeNote, nodes_of
from longline.sources.catalogue.n8n.markdown import (
    LONGEST,
    Reading,
    find_videos,
    read_markdown,
    watch_address,
)
from longline.sources.catalogue.n8n.responses import Detail
from longline.sources.visit import Visit

_PLAIN = Reading()


def read_content(detail: Detail, note: TakeNote) -> dict[str, Any]:
    """Return the fields of layer 3; every empty one is noted with its reason."""
    description = _description_of(detail, note)
    notes = _sticky_notes(detail, note)
    reading = read_markdown(description or "")
    places = [("description", description or "", reading)]
    places += [("sticky note", text, _read_note(text)) for n in notes if (text := n["text"])]
    return {
        "description": description,
        "description_text": _description_text(description, reading, note),
        "headings": reading.headings,
        "sticky_notes": notes,
        "image_references": [*_pictures(places), *_attached(detail, note)],
        "video_references": _found_videos(places),
        "links": list(dict.fromkeys(link for *_, reading in places for link in reading.links)),
    }


def _description_of(detail: Detail, note: TakeNote) -> str | None:
    value = detail.values.get("description")
    if isinstance(value, str):
        return value
    odd = "" if value is None else f" (odd: {type(value).__name__})"
    note("description", detail.why_empty("description") + odd)
    return None


def _description_text(description: str | None, reading: Reading, note: TakeNote) -> str | None:
    if description is None:
        note("description_text", "there is no description")
        return None
    if len(description) > LONGEST:
        note("description_text", f"read to its {LONGEST}th character only")
    elif not reading.text:
        note("description_text", "the description holds no words, only images")
    return reading.text


def _sticky_notes(detail: Detail, note: TakeNote) -> list[dict[str, Any]]:
    workflow = detail.values.get("workflow")
    found = [_sticky_note(node) for node in nodes_of(workflow) if node.get("type") == STICKY_NOTE]
    for key, sentence in (("text", "no text"), ("position", "no position"), ("width", "no size")):
        if count := sum(entry[key] is None for entry in found):
            note("sticky_notes", f"{count} of {len(found)} have {sentence} of their own")
    return found


def _sticky_note(node: Mapping[str, Any]) -> dict[str, Any]:
    parameters = node.get("parameters")
    parameters = parameters if isinstance(parameters, Mapping) else {}
    text = parameters.get("content")
    return {
        "name": node.get("name"),
        "text": text if isinstance(text, str) else None,
        "position": node.get("position"),
        "width": parameters.get("width"),
        "height": parameters.get("height"),
    }


def _read_note(text: str) -> Reading:
    # Most notes hold neither link nor picture, and reading Markdown is the slow part.
    return read_markdown(text) if "](" in text or "<" in text or "://" in text else _PLAIN


def _pictures(places: Iterable[tuple[str, str, Reading]]) -> Iterator[dict[str, Any]]:
    for place, _description_text, reading in places:
        for address, alt in reading.images:
            yield {"address": address, "alt": alt, "found_in": place}


def _attached(detail: Detail, note: TakeNote) -> Iterator[dict[str, Any]]:
    """Yield the images of the answer's own list, to which `fileId:N` in a text refers."""
    images = detail.values.get("image")
    if not isinstance(images, list):
        note("image_references", f"the list of attached images is {detail.why_empty('image')}")
        return
    for entry in images:
        if isinstance(entry, Mapping) and isinstance(entry.get("url"), str):
            yield {
                "address": entry["url"],
                "alt": "",
                "found_in": "attached",
                "file": entry.get("id"),
            }
        else:
            note("image_references", f"an attached image without an address: {entry!r:.80}")


def _found_videos(places: Iterable[tuple[str, str, Reading]]) -> list[dict[str, str]]:
    found = [
        {"id": video, "found_in": place}
        for place, text, _reading in places
        for video in find_videos(text)
    ]
    return [entry for number, entry in enumerate(found) if entry not in found[:number]]


# ---------------- Images and videos of a template, each once, with the places where it was found

_RETRIED = frozenset({429, 500, 502, 503, 504})
_SEEN_AS_ANSWER = frozenset(range(400, 600)) - _RETRIED
_HEAD_UNWELCOME = frozenset({400, 403, 404, 405, 501})
_FILE = "fileid:"


def list_images(
    references: Iterable[Mapping[str, Any]], page_url: str, note: TakeNote
) -> list[dict[str, Any]]:
    """Return the images by address; what has none that can be asked for is noted."""
    references = list(references)
    files = {str(ref["file"]): ref["address"] for ref in references if "file" in ref}
    images: dict[str, dict[str, Any]] = {}
    for reference in references:
        address = _resolve(reference["address"], files, page_url)
        if address is None:
            note("images", f"cannot be resolved: {reference['address']:.80}")
            continue
        image = images.setdefault(address, {"url": address, "alt": "", "found_in": []})
        image["alt"] = image["alt"] or reference["alt"]
        if reference["found_in"] not in image["found_in"]:
            image["found_in"].append(reference["found_in"])
    return list(images.values())


def list_videos(references: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the videos by id."""
    videos: dict[str, dict[str, Any]] = {}
    for reference in references:
        key = reference["id"]
        video = videos.setdefault(key, {"id": key, "url": watch_address(key), "found_in": []})
        if reference["found_in"] not in video["found_in"]:
            video["found_in"].append(reference["found_in"])
    return list(videos.values())


def _resolve(address: str, files: Mapping[str, str], page_url: str) -> str | None:
    if address.lower().startswith(_FILE):
        return files.get(address[len(_FILE) :].strip())
    try:
        absolute = urljoin(page_url, without_userinfo(address))
        is_web = urlsplit(absolute).scheme in {"http", "https"} and urlsplit(absolute).netloc
    except ValueError:  # a bracket in the host
        return None
    return absolute if is_web else None


async def check_image(visit: Visit, url: str, trusted_hosts: frozenset[str]) -> dict[str, Any]:
    """Ask for an image and return its status, type and size in bytes, or the problem.

    Private addresses are left alone unless their host is among those that the user named.
    """
    host = urlsplit(url).hostname or ""
    if host not in trusted_hosts and _is_private(host):
        return _unchecked(None, "not asked: an address of a private network in a stranger's text")
    try:
        page = await visit.fetch(url, method="HEAD", accept=_SEEN_AS_ANSWER)
        if page.status in _HEAD_UNWELCOME:
            page = await visit.fetch(url, accept=_SEEN_AS_ANSWER)
    except FetchError as error:
        return _unchecked(error.status if isinstance(error, BadStatus) else None, str(error))
    return {
        "status": page.status,
        "type": page.headers.get("content-type"),
        "size_bytes": _image_size(page),
    }


def _image_size(page: Page) -> int | None:
    announced = page.headers.get("content-length", "")
    return int(announced) if announced.isdigit() else len(page.body) or None


def _unchecked(status: int | None, problem: str) -> dict[str, Any]:
    return {"status": status, "type": None, "size_bytes": None, "problem": problem}


def _is_private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))
