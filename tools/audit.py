"""Audit what longline is installed with: known vulnerabilities and licences (`make audit`).

Checks the packages pinned in constraints.txt and the servers that the extra `cluster` bundles. What
could not be checked counts like a finding: the exit code is 0 only when everything was checked and
nothing was found.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from longline.services.programs import ADVISORIES, advisories_for, bundled_servers

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")
# Permissive, or copyleft that ends at the border of the library (LGPL, MPL).
_ACCEPTED = re.compile(
    r"\b(MIT|MIT-0|BSD|0BSD|BSD-[23]-Clause|Apache|Apache-2\.0|ISC|PSF-2\.0|MPL|MPL-2\.0"
    r"|Python Software Foundation|Mozilla Public License|LGPL-3\.0-only|ZPL-2\.1|Zlib|CC0-1\.0"
    r"|PostgreSQL|Unlicense|HPND|public domain)\b",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"(?<!L)\b(A?GPL|SSPL|BUSL|Commons Clause|Proprietary|RSAL)", re.IGNORECASE)
_SERVER_LICENCES = {"redis": "BSD-3-Clause", "valkey": "BSD-3-Clause", "postgresql": "PostgreSQL"}


class Result(StrEnum):
    """The outcome of one check."""

    FINE = "fine"
    FOUND = "found"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Line:
    """One check of one package or server."""

    what: str
    result: Result
    detail: str = ""


def main() -> int:
    """Print the audit; return 0 when all was checked and nothing found, else 1."""
    pins = read_pins(CONSTRAINTS.read_text("utf-8"))
    sections = {
        "vulnerabilities of packages": with_newest(
            pins, vulnerabilities(pins, run_pip_audit(CONSTRAINTS)), newest_on_pypi
        ),
        "licences of packages": [licence_of(name) for name in pins],
        "bundled servers": list(servers()),
    }
    for title, lines in sections.items():
        print_section(title, lines)
    everything = [line for lines in sections.values() for line in lines]
    return 0 if all(line.result is Result.FINE for line in everything) else 1


def print_section(title: str, lines: list[Line]) -> None:
    """Print what is not fine line by line, and counts of all results."""
    counts = {result: sum(line.result is result for line in lines) for result in Result}
    told = ", ".join(f"{count} {result}" for result, count in counts.items() if count)
    print(f"{title}: {told}")
    for line in lines:
        if line.result is not Result.FINE or title == "bundled servers":
            print(f"  {line.result:12} {line.what}  {line.detail}".rstrip())


def read_pins(text: str) -> dict[str, str]:
    """Return the pinned packages of a constraints file, versions by name."""
    return dict(_PIN.findall(text))


def run_pip_audit(constraints: Path) -> Mapping[str, Any] | str:
    """Return the report of pip-audit, or why there is none."""
    words = ["--requirement", str(constraints), "--no-deps", "--disable-pip", "--format", "json"]
    try:
        run = subprocess.run(
            [sys.executable, "-m", "pip_audit", *words, "--progress-spinner", "off"],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        report = json.loads(run.stdout)
    except subprocess.TimeoutExpired:
        return "pip-audit did not end within 15 minutes"
    except json.JSONDecodeError:
        last = run.stderr.strip().splitlines()[-1:] or [f"exit code {run.returncode}"]
        return f"pip-audit failed: {last[0][:200]}"
    return report if isinstance(report, dict) else "pip-audit printed something else"


def vulnerabilities(pins: Mapping[str, str], report: Mapping[str, Any] | str) -> list[Line]:
    """Return a line for each pinned package; what the report does not cover was not checked."""
    if isinstance(report, str):
        return [Line(name, Result.NOT_CHECKED, report) for name in pins]
    told = {_normal(one["name"]): one for one in report.get("dependencies", ())}
    return [_judged(name, version, told.get(_normal(name))) for name, version in pins.items()]


def with_newest(
    pins: Mapping[str, str], lines: list[Line], ask: Callable[[str], Mapping[str, Any]]
) -> list[Line]:
    """Check what was not checked by what PyPI says of the newest version, if that is the pin.

    Mirrors of PyPI often have that page alone, and pip-audit asks for that of the version.
    """

    def again(line: Line, name: str, version: str) -> Line:
        if line.result is not Result.NOT_CHECKED:
            return line
        try:
            page = ask(name)
            newest, known = page["info"]["version"], page["vulnerabilities"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            return replace(line, detail=f"{line.detail}; {type(error).__name__} on asking PyPI")
        if newest != version:
            return replace(line, detail=f"{line.detail}; PyPI tells of {newest} only")
        known = [{**one, "fix_versions": one.get("fixed_in")} for one in known]
        return _judged(name, version, {"version": version, "vulns": known})

    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(again, lines, pins, pins.values()))


def newest_on_pypi(name: str) -> Mapping[str, Any]:
    """Return what PyPI says of the newest version of a package.

    Raises:
        OSError: it does not answer.
        ValueError: not in JSON.
    """
    with urlopen(f"https://pypi.org/pypi/{name}/json", timeout=60) as answer:
        page: dict[str, Any] = json.load(answer)
    return page


def _judged(name: str, version: str, told: Mapping[str, Any] | None) -> Line:
    what = f"{name} {version}"
    if told is None:
        return Line(what, Result.NOT_CHECKED, "pip-audit says nothing about it")
    if "vulns" not in told or told.get("version") != version:
        return Line(what, Result.NOT_CHECKED, str(told.get("skip_reason", "another version")))
    found = [_described(one) for one in told["vulns"]]
    return Line(what, Result.FOUND, "; ".join(found)) if found else Line(what, Result.FINE)


def _described(vulnerability: Mapping[str, Any]) -> str:
    fixed = ", ".join(vulnerability.get("fix_versions") or ()) or "no version yet"
    names = " ".join([vulnerability["id"], *vulnerability.get("aliases", ())])
    return f"{names} (fixed in {fixed})"


def licence_of(name: str) -> Line:
    """Return whether the licence of an installed package is one that we accept."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return Line(name, Result.NOT_CHECKED, "not installed here")
    classifiers = [one for one in about.get_all("Classifier") or () if one.startswith("License ::")]
    told = about.get("License-Expression") or ", ".join(
        one.rpartition(" :: ")[2] for one in classifiers
    )
    return judge_licence(name, told or about.get("License") or "")


def judge_licence(name: str, text: str) -> Line:
    """Return whether a licence, as a package words it, is one that we accept."""
    text = " ".join(text.split())[:100]
    if not text:
        return Line(name, Result.NOT_CHECKED, "it names no licence")
    is_accepted = _ACCEPTED.search(text) and not _REFUSED.search(text)
    return Line(name, Result.FINE if is_accepted else Result.FOUND, text)


def servers() -> Iterable[Line]:
    """Yield a line for each bundled server; the list of advisories is ours, and not complete."""
    found = list(bundled_servers())
    for product, version in found:
        licence = _SERVER_LICENCES[product]
        if not version:
            yield Line(product, Result.NOT_CHECKED, "it does not say its version")
            continue
        names = [one.name for one in advisories_for(product, version)]
        known = sum(product in one.fixed for one in ADVISORIES)
        detail = f"{', '.join(names) or 'none'} of the {known} advisories in programs.py; {licence}"
        yield Line(f"{product} {version}", Result.FOUND if names else Result.FINE, detail)
    if not found:
        yield Line("redis, postgresql", Result.NOT_CHECKED, "the extra `cluster` is not installed")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
