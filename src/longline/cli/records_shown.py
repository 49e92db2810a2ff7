"""One record in the terminal: what was collected, and apart from it what machines said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from longline.cli.showing import cleaned, date_time, plain_console, written
from longline.exports.rows import outward

_LINE = 100


def print_record(row: dict[str, Any]) -> None:
    """Print a record, why its quality is what it is, and where its fields come from."""
    shown, about = outward(row), row["about"]
    console = plain_console()  # what sites write may look like markup
    name = cleaned(f"{shown['source']}/{shown['key']}", is_line=True)
    console.print(name, style="bold", end=" ", soft_wrap=True)
    console.print(cleaned(shown["url"], is_line=True), soft_wrap=True)
    table = Table.grid(padding=(0, 2))
    for name, value in shown["data"].items():
        table.add_row(Text(cleaned(name, is_line=True)), Text(_shortened(str(value))))
    console.print(table)
    if quality := about.get("quality"):
        console.print(f"\nquality {quality['score']:.1f} ({quality['grade']})", style="bold")
        for part in quality["parts"]:
            reasons = "; ".join(part["reasons"])
            console.print(
                f"  {part['name']:<12} {part['earned']:.1f} of {part['weight']:.1f}  {reasons}"
            )
        for conflict in quality["conflicts"]:
            console.print(f"  conflict: {conflict}", soft_wrap=True)
    if origins := _origins(shown["provenance"]):
        console.print("\nwhere its fields come from", style="bold")
    for origin, names in origins.items():
        console.print(f"  {origin}: {', '.join(names)}", soft_wrap=True)
    for note in shown["notes"]:
        console.print(f"  note on {note['field']}: {note['text']}", soft_wrap=True)


def print_said(said: Sequence[dict[str, Any]]) -> None:
    """Print what machines were asked about a record; nothing when they never were."""
    if not said:
        return
    console = plain_console()
    console.print("\nmachine-made, not collected", style="bold")
    for one in said:
        console.print(f"  {cleaned(_heading(one), is_line=True)}", soft_wrap=True)
        if one["reason"]:
            console.print(f"    {_shortened(one['reason'])}", soft_wrap=True)
        for name, value in _fields(one["answer"]):
            console.print(f"    {cleaned(name)}: {_shortened(written(value))}", soft_wrap=True)


def _heading(one: dict[str, Any]) -> str:
    age = "" if one["is_current"] else f", of version {one['record_version']}, not this one"
    at = f", {date_time(one['answered_at'])}" if one["answered_at"] is not None else ""
    origin = f"{one['model']}, prompt version {one['prompt_version']}{at}"
    return f"{one['task']}: {one['state']}{age} ({origin})"


def _fields(answer: Any) -> list[tuple[str, Any]]:
    if answer is None:
        return []
    return list(answer.items()) if isinstance(answer, dict) else [("answer", answer)]


def _origins(provenance: dict[str, str]) -> dict[str, list[str]]:
    """Return the fields by where they come from: a layer and the address it read."""
    fields: dict[str, list[str]] = {}
    for name, origin in provenance.items():
        fields.setdefault(cleaned(origin), []).append(name)
    return fields


def _shortened(text: str) -> str:
    text = cleaned(text)  # a site's text must not steer our terminal
    return text if len(text) <= _LINE else f"{text[:_LINE]} … ({len(text)} chars)"
