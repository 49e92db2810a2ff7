"""HTML tables, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return an HTML table; every text is escaped."""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>"
