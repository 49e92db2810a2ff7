"""What people see of a source that is checked, or replayed from its recorded pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from longline.authoring.checking import Check, CheckedField, Checks
from longline.authoring.exchanges import Exchange
from longline.authoring.recording import CaseResult
from longline.cli.showing import echo_line, one_line, written
from longline.fetching.messages import Page
from longline.model import Quality, Verdict

_WIDTH = 100
_ENDS = {
    Verdict.STORE: "it becomes a record",
    Verdict.SKIP: "it is skipped",
    Verdict.FAIL: "it fails",
    Verdict.QUARANTINE: "it is refused and put into quarantine",
    Verdict.LATER: "it is put off",
}


def tell_checks(checks: Checks) -> None:
    """Print what the first items of a source came to."""
    echo_line(f"{checks.source}, version {checks.version}")
    if checks.discovery:
        click.echo(f"\nfinding items, {checks.seconds:.2f} s")
        _tell_exchanges(checks.discovery)
    for note in checks.notes:
        echo_line(f"  note: {note.field}: {note.text}")
    for one in checks.items:
        _tell_check(one)


def tell_result(result: CaseResult) -> None:
    """Print what a replayed case came to."""
    click.echo(f"{result.folder}: {'same' if result.is_same else 'differs'}")
    for difference in result.differences:
        echo_line(f"  {difference}")


def _tell_check(check: Check) -> None:
    click.echo()
    echo_line(f"item {check.item.key}, {check.item.url}")
    for layer in check.layers:
        took = "" if layer.seconds is None else f"{layer.seconds:.2f} s"
        echo_line(f"  layer {layer.name:14} {took:>8}  {layer.end}")
    click.echo("\nfields")
    for field in check.fields:
        _tell_field(field, max(len(one.name) for one in check.fields))
    click.echo("\nrequests")
    _tell_exchanges(check.exchanges)
    reason = f": {check.reason}" if check.reason else ""
    click.echo()
    echo_line(f"{_ENDS[check.verdict]}{reason}")
    if check.found:
        click.echo(f"its page leads to {check.found} more items")
    if check.quality:
        _tell_quality(check.quality)


def _tell_field(field: CheckedField, width: int) -> None:
    value = "(empty)" if field.value is None else shortened(field.value)
    echo_line(f"  {field.name:{width}}  {value}")
    if field.origin:
        echo_line(f"  {'':{width}}    from {field.origin}")
    for note in field.notes:
        echo_line(f"  {'':{width}}    note: {note}")


def _tell_exchanges(exchanges: Sequence[Exchange]) -> None:
    if not exchanges:
        click.echo("  none")
    for one in exchanges:
        echo_line(f"  {one.request.method} {one.request.url}")
        echo_line(f"      {', '.join(_facts(one))}")


def _facts(exchange: Exchange) -> Iterable[str]:
    if isinstance(exchange.result, Page):
        yield f"status {exchange.result.status}"
        yield f"{len(exchange.result.body):,} bytes"
    else:
        yield str(exchange.result)
    yield f"{exchange.seconds:.2f} s"
    if exchange.waited >= 0.01:  # noqa: PLR2004  # what two decimals show
        yield f"of which {exchange.waited:.2f} s waiting for its turn"
    if exchange.requests > 1:
        yield f"{exchange.requests} requests with redirects, retries and robots.txt"
    if exchange.is_cached:
        yield "cached"


def _tell_quality(quality: Quality) -> None:
    click.echo(f"quality {quality.score:g} of 100, {quality.grade}")
    for part in quality.parts:
        for reason in part.reasons:
            echo_line(f"  {part.name}: {reason}")


def shortened(value: Any) -> str:
    """Return a value on one line of bearable length."""
    return one_line(written(value), _WIDTH)
