"""Judge longline by the test cases that other projects publish: right, refused or wrong."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from children import BENCH
from machine import describe, sentence
from others_frame import Suite, Unreachable, Verdict, unpacked
from proofs import Figure, Proof, Sizes, Skipped, none, unjudged

NAME = "others"
_MODULES = ("others_amounts", "others_text", "others_sites", "others_sitemaps")  # each has SUITES
_KINDS = ("right", "refused", "wrong", "policy")
_ABOUT = (
    "The published test cases of other projects, taken from their source distributions at run "
    "time. A value is right, refused (with a note), or wrong; differences of policy are listed in "
    "docs/judged.md."
)
_HEAD = """# Values compared with the tests of other projects

Written by `python bench/others.py` (part of `make soak`); do not edit. The cases are taken from the
source distributions of the packages at run time; ultimate-sitemap-parser publishes none, so its
parser judges generated documents. *Right* is the value that the package expects, *refused* is null
with a note that gives the reason, *wrong* is another value. *Policy* counts documented differences,
listed below one by one; they are not part of the share of right cases.
"""


@dataclass(frozen=True, slots=True)
class Judged:
    """One suite and its results."""

    suite: Suite
    verdicts: list[Verdict]

    @property
    def counts(self) -> Counter[str]:
        """Number of results of each kind."""
        return Counter(verdict.kind for verdict in self.verdicts)

    @property
    def share(self) -> float:
        """The share of right cases, not counting policies."""
        counted = len(self.verdicts) - self.counts["policy"]
        return self.counts["right"] / counted if counted else 0.0

    @property
    def figures(self) -> list[Figure]:
        """The statistics that the proof shows."""
        name, counts = self.suite.name, self.counts
        bar = self.suite.least_right
        shown = f"{counts['right']:,} of {len(self.verdicts) - counts['policy']:,} "
        return [
            Figure(
                f"{name}: right",
                f"{shown}({self.share:.1%})",
                f"≥ {bar:.0%}" if bar else "",
                self.share >= bar if bar else None,
            ),
            unjudged(f"{name}: refused", counts["refused"]),
            none(f"{name}: wrong", counts["wrong"]),
            unjudged(f"{name}: differences of policy", counts["policy"]),
        ]


def suites() -> list[Suite]:
    """Return the suites of all modules that are present."""
    found: list[Suite] = []
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
        else:
            found += module.SUITES
    return found


def judge(wanted: list[Suite]) -> list[Judged]:
    """Judge by these suites.

    Raises:
        Unreachable: a source distribution cannot be downloaded.
    """
    return [Judged(one, one.judge(unpacked(one.package, one.version, one.form))) for one in wanted]


def prove(_sizes: Sizes) -> Proof | Skipped:
    """Judge by all suites and write docs/judged.md."""
    try:
        done = judge(suites())
    except Unreachable as error:
        return Skipped(NAME, str(error))
    write_page(BENCH.parent / "docs", done)
    return Proof(NAME, _ABOUT, [figure for one in done for figure in one.figures])


def write_page(folder: Path, done: list[Judged]) -> None:
    """Replace the sections of these suites in docs/judged.json and docs/judged.md."""
    data = folder / "judged.json"
    known: dict[str, Any] = json.loads(data.read_text("utf-8")) if data.is_file() else {}
    about = describe()
    known.update({one.suite.name: _as_dict(one, about) for one in done})
    order = [one.name for one in suites()]
    known = {name: known[name] for name in order if name in known}
    data.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (folder / "judged.md").write_text(_page(known), "utf-8")


def _as_dict(one: Judged, about: dict[str, Any]) -> dict[str, Any]:
    differences = [
        {"case": verdict.case, "reason": verdict.reason}
        for verdict in one.verdicts
        if verdict.kind == "policy"
    ]
    return {
        "package": one.suite.package,
        "version": one.suite.version,
        **{kind: one.counts[kind] for kind in _KINDS},
        "share": round(one.share, 4),
        "least_right": one.suite.least_right,
        "differences": differences,
        "machine": about,
    }


def _page(known: dict[str, Any]) -> str:
    rows = [
        f"| {name} | {one['package']} {one['version']} | {one['right']:,} | {one['share']:.1%} "
        f"| {one['refused']:,} | {one['wrong']:,} | {one['policy']:,} |"
        for name, one in known.items()
    ]
    head = "| | cases of | right | share | refused | wrong | policy |"
    table = "\n".join([head, "|---|---|--:|--:|--:|--:|--:|", *rows])
    sections = [_section(name, one) for name, one in known.items()]
    return "\n".join([_HEAD, table + "\n", *sections])


def _section(name: str, one: dict[str, Any]) -> str:
    lines = [f"- `{_cell(row['case'])}`: {row['reason']}" for row in one["differences"]]
    listed = "\n".join(lines) if lines else "No policy differences."
    return f"## {name}\n\n{listed}\n\n{sentence(one['machine'])}\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("`", "'").split())


@click.command()
@click.argument("names", nargs=-1)
@click.option("--write/--no-write", default=True, help="Write docs/judged.md and docs/judged.json.")
@click.option("--show", type=click.Choice(_KINDS), multiple=True, help="Print the cases of a kind.")
def main(names: tuple[str, ...], show: tuple[str, ...], *, write: bool) -> None:
    """Judge by the suites NAMES, or by all; exit with 1 when one is wrong or a bar is missed."""
    known = {one.name: one for one in suites()}
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"there is no suite {unknown[0]!r}; there are {', '.join(known)}")
    try:
        done = judge([known[name] for name in names or known])
    except Unreachable as error:
        click.echo(f"skipped: {error}", err=True)
        return
    for one in done:
        _print(one, {"wrong", *show})
    if write:
        write_page(BENCH.parent / "docs", done)
    figures = [figure for one in done for figure in one.figures]
    sys.exit(0 if Proof(NAME, _ABOUT, figures).is_passed else 1)


def _print(one: Judged, shown: set[str]) -> None:
    counts = "  ".join(f"{kind} {one.counts[kind]}" for kind in _KINDS)
    bar = f" (bar {one.suite.least_right:.0%})" if one.suite.least_right else ""
    click.echo(f"{one.suite.name}: {counts}  right {one.share:.1%}{bar}")
    for verdict in one.verdicts:
        if verdict.kind in shown:
            click.echo(
                f"  {verdict.kind}: {verdict.case!r} expected {verdict.expected} got {verdict.got}"
            )


if __name__ == "__main__":
    main()
