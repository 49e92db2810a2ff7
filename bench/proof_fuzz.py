"""The proof that invalid arguments, broken homes and closed streams cause no crash or hang."""

from __future__ import annotations

from fuzz import fuzz
from proofs import Figure, Proof, Sizes, none, unjudged

NAME = "fuzz"


def prove(sizes: Sizes) -> Proof:
    """Run many odd invocations over all commands."""
    done = fuzz(sizes.invocations, sizes.seed)
    figures: list[Figure] = [
        none("hangs (over 60 s)", done.hangs),
        none("tracebacks, internal errors, unknown exit codes", len(done.problems) - done.hangs),
        unjudged("commands", str(done.commands)),
        unjudged("slowest invocation", f"{done.slowest:.1f} s"),
    ]
    about = (
        f"{done.invocations:,} invocations over all commands, generated from their options: "
        "valid, unusual and hostile values, missing and broken files, damaged homes, full and "
        "closed streams, little memory."
    )
    return Proof(NAME, about, figures)
