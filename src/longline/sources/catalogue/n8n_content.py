"""Layer 3 of a template: what explains it, in its description and on its sticky notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from longline.sources.catalogue.markdown import LONGEST, Reading, read_markdown
from longline.sources.catalogue.n8n_answers import Detail
from longline.sources.catalogue.n8n_metadata import TakeNote
from longline.sources.catalogue.n8n_workflow import STICKY_NOTE, nodes_of
from longline.sources.catalogue.videos import find_videos

_PLAIN = Reading()


def read_content(detail: Detail, note: TakeNote) -> dict[str, Any]:
    """Return the fields of layer 3; every empty one is noted with its reason."""
    description = _description(detail, note)
    notes = _sticky_notes(detail, note)
    reading = read_markdown(description or "")
    places = [("description", description or "", reading)]
    places += [("sticky note", text, _read_note(text)) for n in notes if (text := n["text"])]
    return {
        "description": description,
        "description_text": _text(description, reading, note),
        "headings": reading.headings,
        "sticky_notes": notes,
        "image_references": [*_pictures(places), *_attached(detail, note)],
        "video_references": _found_videos(places),
        "links": list(dict.fromkeys(link for *_, reading in places for link in reading.links)),
    }


def _description(detail: Detail, note: TakeNote) -> str | None:
    value = detail.values.get("description")
    if isinstance(value, str):
        return value
    odd = "" if value is None else f" (odd: {type(value).__name__})"
    note("description", detail.why_empty("description") + odd)
    return None


def _text(description: str | None, reading: Reading, note: TakeNote) -> str | None:
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
    for place, _text, reading in places:
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
