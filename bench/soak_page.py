"""The results of the proofs: kept in docs/soak.json, shown in docs/soak.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from machine import sentence
from proofs import Proof

_HEAD = """# Soak tests

Written by `make soak`; do not edit. Each proof is a slow test of a guarantee. To run single
proofs and replace their sections: `python bench/soak.py NAME …`. All traffic stays on the machine.
Quoted messages are those of the commit at which the proof ran; the wording may have changed since.
"""


class SoakPage:
    """The document and its data."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "soak.json"
        self._page = folder / "soak.md"

    def renew(self, proof: Proof, about: dict[str, Any], order: list[str]) -> None:
        """Replace the stored result of a proof."""
        known = json.loads(self._data.read_text("utf-8")) if self._data.is_file() else {}
        known[proof.name] = {**proof.as_dict(), "machine": about}
        ordered = {name: known[name] for name in order if name in known}
        self._data.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", "utf-8")
        sections = [_section(one) for one in ordered.values()]
        self._page.write_text("\n".join([_HEAD, *sections]), "utf-8")


def _section(one: dict[str, Any]) -> str:
    rows = [
        f"| {figure['name']} | {figure['value']} | {figure['bar']} | {_word(figure['holds'])} |"
        for figure in one["figures"]
    ]
    table = "\n".join(["| | measured | target | |", "|---|--:|--:|---|", *rows])
    return f"## {one['name']}\n\n{one['about']}\n\n{table}\n\n{sentence(one['machine'])}\n"


def _word(holds: bool | None) -> str:  # noqa: FBT001  # a field of a value
    return "" if holds is None else "met" if holds else "**missed**"
