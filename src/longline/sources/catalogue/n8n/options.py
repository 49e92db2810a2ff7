"""What a user may set of the n8n source."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from longline.sources.base import Options


def _check_address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        message = f"{value!r} is not an address like https://example.org"
        raise ValueError(message)
    if parts.query or parts.fragment:
        message = f"{value!r} must end before any ? or #"
        raise ValueError(message)
    return value.rstrip("/")


Address = Annotated[str, AfterValidator(_check_address)]


class N8nOptions(Options):
    """Where the catalogue is, how it is listed, and how much of each template is wanted."""

    site_url: Address = "https://n8n.io"
    """Where the pages and the sitemap are."""
    api_url: Address = "https://api.n8n.io/api"
    """Where the template API is; any host with the same API works."""
    youtube_url: Address = "https://www.youtube.com"
    """Base URL for transcripts."""
    inventory: Literal["sitemap", "search"] = "sitemap"
    """How templates are found: by the sitemap, or by the search of the API."""
    detail: Literal["api", "pages"] = "api"
    """How each is read: from the API, or from its public page (without the workflow itself)."""
    transcripts: bool = True
    """Fetch a transcript for each video."""
    language: str = Field("en", min_length=2)
    """The language of the transcript to take when a video has several."""
    images: Literal["list", "check"] = "list"
    """Only list the images, or request each image for its status, type and size."""
    rows: int = Field(100, ge=1, le=100)
    """Templates per page of the search; the real host refuses more than 100."""
    search: str = ""
    """Words to search for; needs inventory=search."""
    category: str = ""
    """Names of categories, comma-separated (ids match nothing); needs inventory=search."""

    @field_validator("search", "category")
    @classmethod
    def _needs_the_search_inventory(cls, value: str, info: ValidationInfo) -> str:
        if value and info.data.get("inventory") != "search":
            message = "the sitemap cannot be filtered; add --set inventory=search"
            raise ValueError(message)
        return value
