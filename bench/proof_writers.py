"""The proof that many processes can write to one home concurrently."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from children import Children, failures
from commands import run_pages
from home import Home
from nginx import serving
from pages import write_pages
from proofs import Figure, Proof, Sizes, none, nothing_wrong, unjudged

NAME = "writers"
_PATIENCE = 300.0
_FAST = ("--rate", "unlimited")


def prove(sizes: Sizes) -> Proof:
    """Let processes write concurrently: first one job each, then one job together."""
    total = sizes.writers * sizes.writer_items
    apart = [(1 + index * sizes.writer_items, sizes.writer_items) for index in range(sizes.writers)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pages(folder / "site", total)
        with serving(folder / "site", folder / "nginx") as server:
            figures = [
                *_together(f"{sizes.writers} jobs", server.url, folder / "apart", apart, total),
                *_together(
                    f"one job, {sizes.writers} processes",
                    server.url,
                    folder / "joined",
                    [(1, total)] * sizes.writers,
                    total,
                ),
            ]
    about = (
        f"{sizes.writers} processes of `longline run --rate unlimited` start together and write "
        f"{total:,} items to one SQLite file."
    )
    return Proof(NAME, about, figures)


def _together(
    title: str, url: str, home: Path, ranges: Sequence[tuple[int, int]], total: int
) -> list[Figure]:
    with Children() as children:
        running = [
            children.start(run_pages(url, home, *_FAST, first=first, count=count))
            for first, count in ranges
        ]
        ended = [child.wait(_PATIENCE) for child in running]
    return [
        nothing_wrong(f"{title}: every process exited with 0", failures(ended)),
        none(
            f"{title}: processes with output on stderr",
            sum(bool(one.errors.strip()) for one in ended),
        ),
        nothing_wrong(
            f"{title}: {total:,} items, each stored exactly once", Home(home).problems(total)
        ),
        unjudged(f"{title}: slowest process", f"{max(one.seconds for one in ended):.1f} s"),
    ]
