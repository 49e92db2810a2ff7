"""The result of the cache tests, as data and as the document docs/http-cache.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from cache_suite import PACKAGE, Case

KINDS = ("required", "optimal", "check")
OURS, HISHEL = "longline", "hishel"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of each contestant in each case, and why longline fails cases."""

    cases: Mapping[str, list[Case]]
    reasons: Mapping[str, str]
    versions: Mapping[str, str]
    date: str

    def passed(self, who: str, kind: str | None = None, part: str = "role") -> int:
        """Return how many cases a contestant passed."""
        return sum(one.is_passed for one in self.of(who, kind, part))

    def of(self, who: str, kind: str | None = None, part: str = "role") -> list[Case]:
        """Return the cases of a part, of one kind or all."""
        every = (one for one in self.cases[who] if one.part == part)
        return [one for one in every if kind in (None, one.kind)]

    def missed(self, part: str) -> list[Case]:
        """Return the required cases that longline does not pass."""
        return [one for one in self.of(OURS, "required", part) if not one.is_passed]

    @property
    def problems(self) -> list[str]:
        """Missed targets; empty if all are met."""
        every = [*self.missed("role"), *self.missed("beyond")]
        silent = [one.id for one in every if self.pattern(one) is None]
        needless = set(self.reasons) - {self.pattern(one) for one in every}
        problems = [f"{name} is required, not passed, and has no reason" for name in silent]
        problems += [f"the reason for {name} is needed no more" for name in sorted(needless)]
        if self.passed(OURS) <= self.passed(HISHEL):
            problems.append("hishel alone passes as many or more")
        return problems

    def pattern(self, case: Case) -> str | None:
        """Return the entry of the reasons that matches a case."""
        return next((name for name in self.reasons if fnmatchcase(case.id, name)), None)

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as JSON values."""
        return {
            "cases": len(self.cases[OURS]),
            "scores": {
                who: {part: self._scores(who, part) for part in ("role", "beyond")}
                for who in self.cases
            },
            "missed_required": [one.id for one in self.missed("role")],
            "problems": self.problems,
        }

    def _scores(self, who: str, part: str) -> dict[str, list[int]]:
        return {
            kind: [self.passed(who, kind, part), len(self.of(who, kind, part))] for kind in KINDS
        }


def table(result: Result, part: str) -> str:
    """Return the scores of a part as a Markdown table."""
    lines = ["| | required | optimal | check | all |", "|---|--:|--:|--:|--:|"]
    for who in result.cases:
        scores = [
            f"{result.passed(who, kind, part)} of {len(result.of(who, kind, part))}"
            for kind in (*KINDS, None)
        ]
        lines.append(f"| {who} | {' | '.join(scores)} |")
    return "\n".join(lines)


def document(result: Result) -> str:
    """Return the whole page."""
    every = len(result.cases[OURS])
    role, beyond = len(result.of(OURS)), len(result.of(OURS, part="beyond"))
    versions = ", ".join(f"{name} {number}" for name, number in result.versions.items())
    return f"""# The HTTP cache in a public test suite

Written by `python bench/cache_tests.py`; do not edit. {result.date}; {versions}.

`{PACKAGE}` (npm) has {every} cases. Its server is the site; its client sends the requests and
judges the responses. Both are unchanged; only its `fetch` is replaced and passes each request to
a cache under test. longline has the role of a browser, whose cache is private: {role} cases. The
suite skips the other {beyond} for browsers; they are counted separately.

{table(result, "role")}

- **longline** is the request chain of a run from the cache middleware inwards, with its SQLite file
  and default settings.
- **hishel** is the adapter of hishel for requests: RFC mode, private, its own SQLite storage.

*Required* is what a cache must do, *optimal* what a good cache does, *check* a question without a
right answer (yes counts as passed). The suite skips a case that depends on a failed one; it
counts as not passed.

## Required and not passed

{_misses(result, "role")}

## Cases that do not apply to a browser

Cases of shared caches and reverse proxies, and cases that a page in a browser cannot observe:
redirects, and conditional requests of the caller.

{table(result, "beyond")}

{_misses(result, "beyond")}
"""


def _misses(result: Result, part: str) -> str:
    missed = result.missed(part)
    if not missed:
        return "None."
    groups: dict[str | None, list[Case]] = {}
    for one in missed:
        groups.setdefault(result.pattern(one), []).append(one)
    return "\n".join(
        f"- {_names(cases)}: {result.reasons[name] if name else '**no reason yet**'}"
        for name, cases in groups.items()
    )


def _names(cases: Iterable[Case]) -> str:
    return ", ".join(f"`{one.id}` ({one.verdict})" for one in cases)
