"""The proof on real templates: all are stored, and every null has a reason."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

from children import run
from commands import run_n8n, sandbox
from home import Home
from proofs import Proof, Sizes, Skipped, exactly, nothing_wrong, unjudged

NAME = "corpus"
_PATIENCE = 600.0


def prove(sizes: Sizes) -> Proof | Skipped:
    """Collect every template of the corpus through the practice web."""
    if sizes.corpus is None:
        return Skipped(NAME, "no file of real templates was given (--corpus FILE)")
    with tempfile.TemporaryDirectory() as name, sandbox("--corpus", str(sizes.corpus)) as url:
        home = Path(name) / "home"
        seen = run(run_n8n(url, home, "--rate", "unlimited"), timeout=_PATIENCE).json()
        problems = Home(home).problems(seen["discovered"])
        unexplained, explained = _nulls(Home(home))
    figures = [
        exactly("stored", seen["stored"], seen["discovered"]),
        nothing_wrong("each exactly once", problems),
        nothing_wrong("every null has a note", _shown(unexplained)),
        unjudged("nulls with a note", sum(explained.values())),
        unjudged("by field", ", ".join(_shown(explained)) or "none"),
    ]
    about = (
        f"{seen['discovered']} real templates are collected from the practice web (`longline "
        "sandbox --corpus FILE`). Every null in the data of a record needs a note that names its "
        "field."
    )
    return Proof(NAME, about, figures)


def _nulls(home: Home) -> tuple[Counter[str], Counter[str]]:
    unexplained: Counter[str] = Counter()
    explained: Counter[str] = Counter()
    for data, about in home.query("SELECT data, about FROM records"):
        noted = {note["field"] for note in json.loads(about)["notes"]}
        for field, value in json.loads(data).items():
            if value is None:
                (explained if field in noted else unexplained)[field] += 1
    return unexplained, explained


def _shown(counts: Counter[str]) -> list[str]:
    return [f"{field} {count}" for field, count in counts.most_common()]
