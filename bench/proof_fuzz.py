"""The proof that odd arguments, broken homes and closed streams end no command badly."""

from __future__ import annotations

from fuzz import fuzz
from proofs import Figure, Proof, Sizes, none, told

NAME = "fuzz"


def prove(sizes: Sizes) -> Proof:
    """Run many odd invocations over all commands."""
    done = fuzz(sizes.invocations, sizes.seed)
    figures: list[Figure] = [
        none("hangs (over 60 s)", done.hangs),
        none("tracebacks, internal errors, unknown exit codes", len(done.problems) - done.hangs),
        told("commands", str(done.commands)),
        told("slowest invocation", f"{done.slowest:.1f} s"),
    ]
    about = (
        f"{done.invocations:,} invocations over all commands, made of their own options: valid, "
        "odd and hostile values, missing and broken files, damaged homes, full and closed "
        "streams, little memory."
    )
    return Proof(NAME, about, figures)
