"""Images and videos of a template, each once, with the places where it was found."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from longline.errors import BadStatus, FetchError
from longline.fetching.messages import Page, without_userinfo
from longline.sources.catalogue.n8n_metadata import TakeNote
from longline.sources.catalogue.videos import watch_address
from longline.sources.visit import Visit

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
        "size_bytes": _size(page),
    }


def _size(page: Page) -> int | None:
    announced = page.headers.get("content-length", "")
    return int(announced) if announced.isdigit() else len(page.body) or None


def _unchecked(status: int | None, problem: str) -> dict[str, Any]:
    return {"status": status, "type": None, "size_bytes": None, "problem": problem}


def _is_private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))
