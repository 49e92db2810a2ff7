"""longline sources new: propose a manifest for the list at an address, and try it first."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from rich.padding import Padding
from rich.text import Text

from longline.cli.format import error_console, plain_console
from longline.cli.options import (
    COUNT,
    home_option,
    ignore_robots_option,
    json_option,
    print_json,
    settings_of,
)
from longline.cli.tables import Fitting
from longline.config.job_spec import make_spec
from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.errors import BadOption, DestinationUnwritable
from longline.devtools.propose.fields import ProposedField
from longline.devtools.propose.proposal import (
    Candidate,
    ItemKind,
    Proposal,
    manifest_text,
    shortened,
)
from longline.devtools.propose.proposer import PageSurvey, Proposer, Transport
from longline.devtools.session import NO_SOURCE, open_page_chain

_PARTIAL = 3
_NAME = re.compile(r"[^\W\d][\w-]*")
_KINDS = {
    ItemKind.PAGES: "{count} elements {selector}, each with a page of its own ({link})",
    ItemKind.ELEMENTS: "{count} elements {selector}",
    ItemKind.RECORDS: "{count} objects at {selector} in the JSON of {url}",
    ItemKind.SCRIPT: "{count} objects at {selector} in a script of the page",
    ItemKind.PAGE: "the page itself",
}


@click.command("new")
@click.argument("url")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write [NAME.yaml].",
)
@click.option("--name", help="Name of the source [made from the address].")
@click.option(
    "--yes", is_flag=True, help="Ask nothing: take the best candidate and all its fields."
)
@click.option(
    "--candidate",
    type=COUNT,
    help="Take this candidate for the items, by its number in the list; ask nothing about it.",
)
@click.option(
    "--transport",
    type=click.Choice(["http", "browser"]),
    default="http",
    show_default=True,
    help="How the page is opened; browser for pages that scripts draw.",
)
@click.option("--dry-run", is_flag=True, help="Write no file.")
@ignore_robots_option
@home_option
@json_option
def new(*, url: str, output: Path | None, yes: bool, as_json: bool, **given: Any) -> None:
    """Propose a manifest for the list at URL: its items, its further pages, their fields.

    The candidates for the items are ranked and shown with the reasons. The manifest is tried on the
    second page of the list and on several items before it is written. Exit code 0 is a manifest
    that held, 3 one with warnings, 1 none.
    """
    if not url.startswith(("http://", "https://")) or not _has_host(url):
        raise BadOption("URL", f"must be a whole address, like https://example.org/a, not {url!r}")
    if output is not None and output.exists():
        raise BadOption("-o", f"{output} exists already and is not overwritten; name another file")
    dialog = _Dialog(is_asking=not (yes or as_json), is_quiet=as_json)
    settings = settings_of(given["home"])
    survey, proposal = asyncio.run(_propose(settings, url, dialog, given))
    path = None if given["dry_run"] else output or Path(f"{proposal.name}.yaml")
    if path is None:
        pass
    elif path.exists():
        raise BadOption("-o", f"{path} exists already; name another file")
    else:
        _write(path, manifest_text(proposal))
    if as_json:
        print_json(
            {
                "candidates": [one.as_dict() for one in survey.candidates],
                "proposal": proposal.as_dict(),
                "path": str(path) if path else None,
            }
        )
    else:
        _show_end(proposal, path)
    sys.exit(_PARTIAL if proposal.warnings else 0)


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:  # of IPv6, half an address
        return False


async def _propose(
    settings: Settings, url: str, dialog: _Dialog, given: dict[str, Any]
) -> tuple[PageSurvey, Proposal]:
    spec = make_spec({"source": NO_SOURCE, "ignore_robots": given["ignore_robots"]})
    transport: Transport = given["transport"]
    clock = SystemClock()
    async with open_page_chain(settings, spec, clock, transport=transport) as link:
        proposer = Proposer(link, url, given["name"], clock=clock, transport=transport)
        survey = await proposer.survey()
        dialog.show_candidates(survey.candidates)
        number = given["candidate"] or dialog.chosen(survey.candidates)
        if number is None:
            proposal = await proposer.best(survey)
        else:
            proposal = await proposer.propose(survey, _numbered(survey, number))
    dialog.show_proposal(proposal, survey)
    return survey, dialog.edited(proposal)


def _numbered(survey: PageSurvey, number: int) -> Candidate:
    if number > len(survey.candidates):
        count = len(survey.candidates)
        raise BadOption("--candidate", f"there are {count} candidates, and this is {number}")
    return survey.candidates[number - 1]


class _Dialog:
    """Shows what was found and asks what to keep; quiet for `--json`, silent with `--yes`."""

    def __init__(self, *, is_asking: bool, is_quiet: bool) -> None:
        self._is_asking = is_asking
        self._is_quiet = is_quiet

    def show_candidates(self, candidates: Sequence[Candidate]) -> None:
        """Print the candidates, each with examples and reasons."""
        if self._is_quiet:
            return
        screen = plain_console()
        room = screen.width - 5
        screen.print("Candidates for the items, the most likely first:\n")
        for number, one in enumerate(candidates, start=1):
            screen.print(Text(f"{number:3}  {shortened(described(one), room)}", "bold"))
            for text in one.samples[:2] if one.kind is not ItemKind.PAGE else ():
                screen.print(f"     {shortened(text, room)}")
            score = [f"score {one.score:.0f}"] if one.score else []
            reasons = Text("; ".join([*score, *one.reasons]), "dim")
            screen.print(Padding(reasons, (0, 0, 0, 5)))
        screen.print()

    def chosen(self, candidates: Sequence[Candidate]) -> int | None:
        """Return the number that the user chose; None leaves the choice to the trial."""
        if not self._is_asking or len(candidates) == 1:
            return None
        number: int = click.prompt(
            "Which are the items?", type=click.IntRange(1, len(candidates)), default=1
        )
        click.echo()
        return number

    def show_proposal(self, proposal: Proposal, survey: PageSurvey) -> None:
        """Print the fields, the further pages, and what did not hold."""
        if self._is_quiet:
            return
        screen = plain_console()
        number = survey.candidates.index(proposal.candidate) + 1
        screen.print(Text(f"Candidate {number}: {described(proposal.candidate)}", "bold"))
        if proposal.candidate.kind is not ItemKind.PAGE:
            pages = proposal.pages or {}
            how = ", ".join(f"{name} {value}" for name, value in pages.items())
            screen.print(f"Further pages: {how or 'no way to them was found'}")
        tried = counted(len(proposal.tried), "page")
        screen.print(f"Tried on {tried}: {counted(len(proposal.records), 'record')}\n")
        table = Fitting("#", "field", "type", "filled", "example", least=["filled", "type"])
        for place, one in enumerate(proposal.all_fields, start=1):
            sample = shortened(one.samples[0], max(20, screen.width - 46)) if one.samples else ""
            table.add(str(place), one.name, one.kind or "text", f"{one.filled:.0%}", sample)
        screen.print(table)
        for note in proposal.notes:
            screen.print(f"note: {note}")
        for warning in proposal.warnings:
            error_console().print(Text(f"warning: {warning.text}", "yellow"))

    def edited(self, proposal: Proposal) -> Proposal:
        """Return the proposal with the fields that the user keeps, under the names they want."""
        if not self._is_asking:
            return proposal
        click.echo(
            "\nEnter keeps all fields. Otherwise: -3 drops field 3, 2=author renames field 2."
        )
        while True:
            answer = click.prompt("Fields", default="", show_default=False)
            try:
                return with_edits(proposal, answer.split())
            except BadOption as error:
                click.echo(str(error), err=True)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def described(candidate: Candidate) -> str:
    """Return what a candidate is, in one line."""
    return _KINDS[candidate.kind].format(
        count=candidate.count,
        selector=candidate.selector,
        link=candidate.link or "the element",
        url=candidate.url,
    )


def with_edits(proposal: Proposal, edits: Sequence[str]) -> Proposal:
    """Return a proposal with fields dropped (`-3`) and renamed (`2=author`).

    Raises:
        BadOption: an edit is not one of these, or no field is left.
    """
    fields: list[ProposedField | None] = list(proposal.all_fields)
    for edit in edits:
        number, name = _edit(edit, len(fields))
        field = fields[number - 1]
        fields[number - 1] = field.named(name) if field is not None and name else None
    names = [one.name for one in fields if one is not None]
    if len(set(names)) < len(names):
        raise BadOption("fields", "two fields have the same name")
    count = len(proposal.fields)
    own = [one for one in fields[:count] if one is not None]
    if not own:
        raise BadOption("fields", "none is left, and a manifest needs one")
    listed = [one for one in fields[count:] if one is not None]
    return proposal.having(fields=own, list_fields=listed)


def _edit(text: str, count: int) -> tuple[int, str | None]:
    number, _, name = text.removeprefix("-").partition("=")
    is_drop = text.startswith("-") and not name
    if not number.isdecimal() or not 1 <= int(number) <= count:
        raise BadOption("fields", f"{text!r} does not begin with the number of a field")
    if not is_drop and not _NAME.fullmatch(name):
        raise BadOption("fields", f"{text!r} is neither -{number} nor {number}=name")
    return int(number), None if is_drop else name


def _show_end(proposal: Proposal, path: Path | None) -> None:
    if path is None:
        click.echo(f"\n{manifest_text(proposal)}")
        return
    click.echo(f"\n{path} is written: {counted(len(proposal.all_fields), 'field')}")
    click.echo(f"  check one item:  longline sources check {path}")
    click.echo(f"  plan the run:    longline plan {path}")
    click.echo(f"  run it:          longline run {path}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise DestinationUnwritable(str(path), error.strerror or str(error)) from error
