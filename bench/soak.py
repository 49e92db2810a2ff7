"""The slow proofs of what longline promises; each can be run alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import others
import proof_browser
import proof_catalogue
import proof_cluster_faults
import proof_cluster_kill
import proof_cluster_lifecycle
import proof_cluster_memory
import proof_cluster_poison
import proof_cluster_throughput
import proof_cluster_writers
import proof_cluster_zero_429
import proof_corpus
import proof_files
import proof_flows
import proof_fuzz
import proof_hostile
import proof_kill
import proof_learning
import proof_memory
import proof_proxies
import proof_recovery
import proof_schedules
import proof_writers
import proof_zero_429
from children import BENCH, exit_on_sigterm
from machine import describe
from nginx import HINT, find_nginx
from proofs import Figure, Proof, Sizes, Skipped
from soak_page import SoakPage

PROOFS: dict[str, Callable[[Sizes], Proof | Skipped]] = {
    module.NAME: module.prove
    for module in (
        proof_zero_429,
        proof_learning,
        proof_kill,
        proof_files,
        proof_writers,
        proof_catalogue,
        proof_memory,
        proof_schedules,
        proof_flows,
        proof_proxies,
        proof_corpus,
        proof_hostile,
        proof_fuzz,
        proof_browser,
        others,
        proof_cluster_zero_429,
        proof_cluster_kill,
        proof_cluster_poison,
        proof_cluster_writers,
        proof_cluster_memory,
        proof_cluster_throughput,
        proof_cluster_lifecycle,
        proof_cluster_faults,
        proof_recovery,
    )
}
_NEED_NGINX = {
    proof_zero_429.NAME,
    proof_learning.NAME,
    proof_writers.NAME,
    proof_cluster_zero_429.NAME,
    proof_cluster_writers.NAME,
    proof_cluster_throughput.NAME,
    proof_cluster_lifecycle.NAME,
    proof_cluster_faults.NAME,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(PROOFS)))
@click.option("--requests", type=click.IntRange(min=20), default=200, help="of zero-429")
@click.option("--learning", type=click.IntRange(min=50), default=150, help="pages of learning")
@click.option("--kills", type=click.IntRange(min=1), default=100, help="of kill")
@click.option("--kill-items", type=click.IntRange(min=1), default=2000, help="of kill")
@click.option("--files", type=click.IntRange(min=1), default=10_000, help="of files")
@click.option("--file-kills", type=click.IntRange(min=1), default=40, help="of files")
@click.option("--file-bytes", type=click.IntRange(min=1), default=2_000_000_000, help="of files")
@click.option("--seed", type=int, default=1, help="of the times of kill, and of fuzz")
@click.option("--invocations", type=click.IntRange(min=1), default=1200, help="of fuzz")
@click.option("--writers", type=click.IntRange(min=1), default=10, help="processes of writers")
@click.option("--writer-items", type=click.IntRange(min=1), default=200, help="items of each")
@click.option("--catalogue", type=click.IntRange(min=1), default=6022, help="items of catalogue")
@click.option("--schedules", type=click.IntRange(min=1), default=500, help="of schedules")
@click.option("--schedule-days", type=click.IntRange(min=1), default=30, help="of schedules")
@click.option("--schedule-parts", type=click.IntRange(min=1), default=2, help="of these days")
@click.option("--flow-trials", type=click.IntRange(min=2), default=340, help="at most, of flows")
@click.option("--proxied-pages", type=click.IntRange(min=50), default=2000, help="of proxies")
@click.option("--queued", type=click.IntRange(min=1), default=100_000, help="items of memory")
@click.option(
    "--cluster-requests", type=click.IntRange(min=20), default=120, help="of cluster-zero-429"
)
@click.option("--cluster-kills", type=click.IntRange(min=1), default=120, help="of cluster-kill")
@click.option("--poison-items", type=click.IntRange(min=2), default=300, help="of cluster-poison")
@click.option("--poison-rounds", type=click.IntRange(min=1), default=3, help="of cluster-poison")
@click.option("--cluster-writers", type=click.IntRange(min=1), default=10, help="workers of it")
@click.option("--cluster-items", type=click.IntRange(min=1), default=5000, help="items of it")
@click.option(
    "--cluster-jobs", type=click.IntRange(min=1), default=10_000, help="of cluster-memory"
)
@click.option(
    "--throughput-items", type=click.IntRange(min=100), default=2000, help="of cluster-throughput"
)
@click.option("--throughput-rounds", type=click.IntRange(min=1), default=5, help="in turns")
@click.option("--lives", type=click.IntRange(min=1), default=10, help="of cluster-lifecycle")
@click.option("--stall", type=float, default=30.0, help="seconds that Redis stalls, cluster-faults")
@click.option("--recovery-sources", type=click.IntRange(min=1), default=50, help="of recovery")
@click.option("--recovery-minutes", type=float, default=10.0, help="of recovery")
@click.option(
    "--corpus",
    envvar="CORPUS",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file of real templates for corpus; or run make soak CORPUS=FILE.",
)
@click.option("--write/--no-write", default=True, help="Write docs/soak.md and docs/soak.json.")
def main(*, names: tuple[str, ...], write: bool, **sizes: Any) -> None:
    """Run the proofs NAMES, or all; exit with 1 if one fails."""
    exit_on_sigterm()
    wanted = names or tuple(PROOFS)
    if _NEED_NGINX & set(wanted) and find_nginx() is None:
        click.echo(HINT, err=True)
        sys.exit(2)
    page = SoakPage(BENCH.parent / "docs") if write else None
    failed = [name for name in wanted if not _run(name, Sizes(**sizes), page)]
    click.echo(f"failed: {', '.join(failed)}" if failed else "every proof passed")
    sys.exit(1 if failed else 0)


def _run(name: str, sizes: Sizes, page: SoakPage | None) -> bool:
    """Run one proof, print and store its values; return False if it fails."""
    click.echo(f"\n{name} …")
    about = describe()
    try:
        result = PROOFS[name](sizes)
    except Exception as error:  # noqa: BLE001  # the edge of a proof: the others go on
        click.echo(f"  {type(error).__name__}: {error}", err=True)
        # What went wrong may name places on this machine, which a document must not.
        failure = Figure("failure", type(error).__name__, "none", holds=False)
        result = Proof(name, "It could not be run to its end.", [failure])
    if isinstance(result, Skipped):
        click.echo(f"  left out: {result.reason}")
        return True
    for figure in result.figures:
        word = "" if figure.holds is None else "kept" if figure.holds else "MISSED"
        click.echo(
            f"  {figure.name}: {figure.value}  {figure.bar and f'(bar {figure.bar})'} {word}"
        )
    if page:
        page.renew(result, about, list(PROOFS))
    return result.is_passed


if __name__ == "__main__":
    main()
