"""The proof on the whole catalogue: in virtual time with its limit, in real time without one."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from children import BENCH, run
from commands import run_n8n, sandbox
from home import Home
from proofs import Figure, Proof, Sizes, at_most, exactly, none, nothing_wrong, unjudged

NAME = "catalogue"
_PATIENCE = 900.0
_RATE = 2.0
_BURST = 5
_LONGEST = 60.0
_LARGEST = 150.0


def prove(sizes: Sizes) -> Proof:
    """Collect the catalogue twice."""
    with tempfile.TemporaryDirectory() as name:
        figures = [
            *_on_virtual_time(sizes.catalogue, Path(name) / "virtual"),
            *_for_real(sizes.catalogue, Path(name) / "real"),
        ]
    about = (
        f"The n8n source collects {sizes.catalogue:,} templates: in virtual time from a catalogue "
        f"in memory that allows {_RATE:g} requests per second (without transcripts), and in real "
        "time from `longline sandbox` with `--rate unlimited`."
    )
    return Proof(NAME, about, figures)


def _on_virtual_time(items: int, home: Path) -> list[Figure]:
    program = str(BENCH / "virtual_catalogue.py")
    ended = run([sys.executable, program, str(items), str(home)], timeout=_PATIENCE)
    seen = ended.json()
    shortest = (seen["server_requests"] - _BURST) / _RATE
    return [
        exactly("virtual: stored", seen["stored"], items),
        none("virtual: responses with 429", seen["server_rate_limited"]),
        at_most("virtual: real time", seen["real_seconds"], _LONGEST, "s"),
        unjudged("virtual: simulated time", f"{seen['seconds']:,.1f} s"),
        unjudged("virtual: the shortest that the limit allows", f"{shortest:,.1f} s"),
    ]


def _for_real(items: int, home: Path) -> list[Figure]:
    with sandbox("--items", str(items)) as url:
        ended = run(run_n8n(url, home, "--rate", "unlimited"), timeout=_PATIENCE)
    seen = ended.json()
    return [
        exactly("real time: stored", seen["stored"], items),
        nothing_wrong("real time: each exactly once", Home(home).problems(items)),
        at_most("real time: peak memory", (ended.peak_bytes or 0) / 1e6, _LARGEST, "MB"),
        unjudged("real time: items per second", f"{items / seen['seconds']:.0f}"),
        unjudged("real time: requests", f"{seen['requests']:,.0f}"),
    ]
