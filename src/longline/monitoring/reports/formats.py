"""The formats of reports, and which one a file has by its name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePath
from typing import Any

from longline.core.clock import utc_datetime
from longline.core.errors import BadOption
from longline.core.json import as_text
from longline.core.output import sanitize_json
from longline.core.redaction import KNOWN_SECRETS
from longline.monitoring.reports.page import ReportPage
from longline.monitoring.reports.text import as_markdown, as_plain_text


class ReportFormat(StrEnum):
    """How a report is written."""

    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    JSON = "json"


_SUFFIXES = {
    ".txt": ReportFormat.TEXT,
    ".md": ReportFormat.MARKDOWN,
    ".markdown": ReportFormat.MARKDOWN,
    ".html": ReportFormat.HTML,
    ".htm": ReportFormat.HTML,
    ".json": ReportFormat.JSON,
}


def format_of_file(name: str) -> ReportFormat:
    """Return the format of a file by its suffix.

    Raises:
        BadOption: no format has this suffix.
    """
    found = _SUFFIXES.get(PurePath(name).suffix.lower())
    if found is None:
        known = ", ".join(_SUFFIXES)
        raise BadOption("output", f"{name!r} has none of the suffixes {known}; give a format")
    return found


def render(
    page: ReportPage,
    values: Mapping[str, Any],
    wanted: ReportFormat,
    *,
    width: int | None = None,
) -> str:
    """Return a report as text of a format.

    Args:
        page: what people read.
        values: what programs read, in JSON.
        wanted: the format.
        width: columns of plain text.
    """
    return KNOWN_SECRETS.text(_rendered(page, values, wanted, width))


def _rendered(
    page: ReportPage, values: Mapping[str, Any], wanted: ReportFormat, width: int | None
) -> str:
    if wanted is ReportFormat.JSON:
        return f"{sanitize_json(as_text(with_iso_times(values)))}\n"
    if wanted is ReportFormat.HTML:
        from longline.monitoring.reports.html import as_html  # noqa: PLC0415  # imports Jinja2

        return as_html(page)
    return (
        as_markdown(page) if wanted is ReportFormat.MARKDOWN else as_plain_text(page, width=width)
    )


def with_iso_times(value: Any, name: str = "") -> Any:
    """Return a value for JSON whose times, by their names, are in ISO 8601."""
    if isinstance(value, Mapping):
        return {key: with_iso_times(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [with_iso_times(one, name) for one in value]
    is_time = name.endswith("_at") or name in {"at", "since", "start", "end"}
    if is_time and isinstance(value, float):
        return utc_datetime(value).isoformat(timespec="seconds")
    return value
