"""Random requests to the HTTP API, made from its OpenAPI document with schemathesis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from schemathesis import engine
from schemathesis.config import SchemathesisConfig
from schemathesis.engine.events import NonFatalError, ScenarioFinished

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
ENDLESS = "stream_events"
_KNOWN = 0.7  # share of requests whose parameters have known values


@dataclass(slots=True)
class Findings:
    """What the requests of a run have found.

    `statuses` counts responses by operation and status; `problems` are failed checks, each once.
    """

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return self.statuses.total()

    def successes(self) -> set[str]:
        """Return the operations that have succeeded at least once."""
        return {name for name, status in self.statuses if status < 300}  # as HTTP


def fuzz(
    document: dict[str, Any],
    url: str,
    headers: Mapping[str, str],
    *,
    seed: int,
    phases: tuple[str, ...],
    known: Mapping[str, Sequence[str | int]],
    examples: int = 1,
    seconds: int | None = None,
) -> Findings:
    """Send random requests to every operation, and check the responses.

    Args:
        document: the OpenAPI document.
        url: where the server listens.
        headers: how the requests authenticate; a token might be revoked by one of them.
        seed: the same seed sends the same requests to the same server.
        phases: examples, coverage, fuzzing, stateful.
        known: values of parameters of paths that exist, by name; most requests have them.
        examples: requests of each operation in the phases of random ones.
        seconds: the longest duration of the run.
    """
    names = ("examples", "coverage", "fuzzing", "stateful")
    values: dict[str, Any] = {
        "seed": seed,
        "base-url": url,
        "headers": dict(headers),
        "continue-on-failure": True,
        "request-timeout": 20,
        "generation": {
            "deterministic": True,
            "max-examples": examples,
            "database": "none",
            "no-shrink": True,
            "with-security-parameters": False,
        },
        "checks": {"enabled": False, **{name: {"enabled": True} for name in CHECKS}},
        "dictionaries": {name: {"values": [*values]} for name, values in known.items()},
        "parameters": {
            f"path.{name}": {"dictionary": name, "probability": _KNOWN} for name in known
        },
        "phases": {name: {"enabled": name in phases} for name in names},
    }
    if seconds is not None:
        values["max-time"] = seconds
    config = SchemathesisConfig.from_dict(values)
    schema = schemathesis.openapi.from_dict(_without_keys(document), config=config)
    findings = Findings()
    for event in engine.from_schema(schema.exclude(operation_id=ENDLESS)).execute():
        if isinstance(event, NonFatalError):
            findings.problems[str(event.info.title)] = str(event.info.message)
        elif isinstance(event, ScenarioFinished):
            _add(findings, event)
    return findings


def _without_keys(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without examples of keys: only the first request with a key succeeds."""
    copied = deepcopy(document)
    for methods in copied["paths"].values():
        for about in methods.values():
            for parameter in about.get("parameters", []):
                if parameter["in"] == "header":
                    parameter.pop("example", None)
    return copied


def _add(findings: Findings, event: ScenarioFinished) -> None:
    recorder = event.recorder
    for name, interaction in recorder.interactions.items():
        case = recorder.cases[name].value
        if interaction.response is not None:
            findings.statuses[case.operation.label, interaction.response.status_code] += 1
    for name, checks in recorder.checks.items():
        case = recorder.cases[name].value
        for one in checks:
            if one.failure_info is not None:
                where = f"{case.operation.label}: {one.name}"
                failure = one.failure_info
                text = f"{failure.failure}\n{failure.code_sample}"
                findings.problems.setdefault(where, text)
