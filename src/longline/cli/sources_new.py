"""longline sources new: a page in, a manifest out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import click

from longline.authoring.bench import SINGLE, open_page_link
from longline.authoring.lists import ItemList
from longline.authoring.proposals import Proposal, ProposedField
from longline.authoring.proposing import Proposer
from longline.authoring.writing import manifest_text
from longline.cli.options import home_option, ignore_robots_option, settings_of
from longline.cli.sources_told import shortened
from longline.clock import SystemClock
from longline.config.settings import Settings
from longline.config.spec import make_spec
from longline.errors import BadOption, DestinationUnwritable

_DROP = "-"


@click.command("new")
@click.argument("url")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write [NAME.yaml].",
)
@click.option("--name", help="The name of the source [made of its address].")
@click.option("--yes", is_flag=True, help="Ask nothing, and keep all that is proposed.")
@ignore_robots_option
@home_option
def new(
    *,
    url: str,
    output: Path | None,
    name: str | None,
    yes: bool,
    ignore_robots: tuple[str, ...],
    home: Path | None,
) -> None:
    """Propose a manifest for the list at URL: its items, its further pages, their fields."""
    if not url.startswith(("http://", "https://")) or not _has_host(url):
        raise BadOption("URL", f"must be a whole address, like https://example.org/a, not {url!r}")
    if output is not None and output.exists():
        raise BadOption("-o", f"{output} is there already, and is not written over")
    proposal = asyncio.run(_propose(settings_of(home), url, name, ignore_robots, is_asking=not yes))
    path = output or Path(f"{proposal.name}.yaml")
    if path.exists():
        raise BadOption("-o", f"{path} is there already: name another file")
    _write(path, manifest_text(proposal))
    for note in proposal.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(f"\n{path} is written: {len(proposal.fields)} fields")
    click.echo(f"  check one item:  longline sources check {path}")
    click.echo(f"  plan the run:    longline plan {path}")
    click.echo(f"  run it:          longline run {path}")


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:  # of IPv6, half an address
        return False


async def _propose(
    settings: Settings, url: str, name: str | None, ignored: tuple[str, ...], *, is_asking: bool
) -> Proposal:
    spec = make_spec({"source": SINGLE, "ignore_robots": ignored})
    async with open_page_link(settings, spec, SystemClock()) as link:
        proposer = Proposer(link, url, name)
        page, lists = await proposer.lists()
        items = _chosen(lists, is_asking=is_asking)
        proposal = await proposer.propose(page, items)
    _tell_pages(proposal)
    fields = [kept for one in proposal.fields if (kept := _kept(one, is_asking=is_asking))]
    if not fields:
        raise BadOption("fields", "none was kept, and a manifest needs one")
    return proposal.having(fields=fields)


def _chosen(lists: list[ItemList], *, is_asking: bool) -> ItemList | None:
    """Return the list that the user means; None when the page has none."""
    for one in lists:
        click.echo(f"{len(one.texts)} elements {one.elements}")
        for text in one.texts[:3]:
            click.echo(f"  {shortened(text)}")
        where = "their pages" if one.link else "no pages of their own"
        click.echo(f"  with {where}{f', by {one.link}' if one.link else ''}")
        if not is_asking or click.confirm("Are these the items?", default=True):
            return one
    click.echo("no list: the page itself is taken for the item")
    return None


def _tell_pages(proposal: Proposal) -> None:
    if proposal.items is None:
        return
    pages = proposal.pages
    told = ", ".join(f"{name} {value}" for name, value in pages.items()) if pages else None
    click.echo(f"further pages: {told or 'no way to them was found'}")
    for address in proposal.details:
        click.echo(f"looked at {address}")


def _kept(field: ProposedField, *, is_asking: bool) -> ProposedField | None:
    """Return a field as the user wants it; None drops it."""
    place = field.place.get("css") or field.place.get("json_ld")
    kind = f" ({field.kind})" if field.kind else ""
    click.echo(f"  {field.name}{kind}: {shortened(field.samples[0])}")
    click.echo(f"      from {place}")
    if not is_asking:
        return field
    name = click.prompt(f"  Its name ({_DROP} drops it)", default=field.name).strip()
    return None if name == _DROP else field.named(name)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise DestinationUnwritable(str(path), error.strerror or str(error)) from error
