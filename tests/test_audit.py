"""`make audit`: what was not checked is never called fine."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PINS = {"good": "1.0", "Bad_One": "2.0"}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    """The script, which is not part of the package."""
    path = Path(__file__).parent.parent / "tools" / "audit.py"
    spec = importlib.util.spec_from_file_location("audit", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit"] = module
    spec.loader.exec_module(module)
    return module


def report(*dependencies: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": list(dependencies), "fixes": []}


def results(lines: list[Any]) -> list[str]:
    return [line.result.name for line in lines]


def test_a_package_without_vulnerabilities_is_fine(audit: ModuleType) -> None:
    told = report(
        {"name": "good", "version": "1.0", "vulns": []},
        {"name": "bad-one", "version": "2.0", "vulns": [{"id": "X-1", "fix_versions": ["2.1"]}]},
    )

    lines = audit.vulnerabilities(PINS, told)

    assert results(lines) == ["FINE", "FOUND"]
    assert "X-1" in lines[1].detail


def test_what_pip_audit_skips_was_not_checked(audit: ModuleType) -> None:
    told = report({"name": "good", "skip_reason": "not found"})

    assert results(audit.vulnerabilities(PINS, told)) == ["NOT_CHECKED", "NOT_CHECKED"]


def test_without_a_report_nothing_was_checked(audit: ModuleType) -> None:
    lines = audit.vulnerabilities(PINS, "no connection")

    assert results(lines) == ["NOT_CHECKED", "NOT_CHECKED"]


def test_the_newest_version_stands_in_only_for_itself(audit: ModuleType) -> None:
    pages = {
        "good": {"info": {"version": "1.0"}, "vulnerabilities": []},
        "Bad_One": {"info": {"version": "2.1"}, "vulnerabilities": []},
    }
    lines = audit.vulnerabilities(PINS, "no connection")

    assert results(audit.with_newest(PINS, lines, pages.__getitem__)) == ["FINE", "NOT_CHECKED"]


def test_vulnerabilities_of_the_newest_version_are_found(audit: ModuleType) -> None:
    known = [{"id": "X-2", "aliases": ["CVE-1"], "fixed_in": []}]
    lines = audit.vulnerabilities({"good": "1.0"}, "no connection")

    (line,) = audit.with_newest(
        {"good": "1.0"}, lines, lambda _: {"info": {"version": "1.0"}, "vulnerabilities": known}
    )

    assert (line.result.name, "CVE-1" in line.detail) == ("FOUND", True)


def test_a_pypi_that_does_not_answer_checks_nothing(audit: ModuleType) -> None:
    def away(_name: str) -> dict[str, Any]:
        raise OSError

    lines = audit.vulnerabilities(PINS, "no connection")

    assert results(audit.with_newest(PINS, lines, away)) == ["NOT_CHECKED", "NOT_CHECKED"]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("MIT", "FINE"),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", "FINE"),
        ("LGPL-3.0-only", "FINE"),
        ("BSD License", "FINE"),
        ("GPL-3.0-or-later", "FOUND"),
        ("GNU Affero General Public License v3 (AGPLv3)", "FOUND"),
        ("MIT AND SSPL-1.0", "FOUND"),
        ("something of its own", "FOUND"),
        ("", "NOT_CHECKED"),
    ],
)
def test_a_licence_is_judged(audit: ModuleType, text: str, result: str) -> None:
    assert audit.judge_licence("x", text).result.name == result


def test_a_package_that_is_not_installed_was_not_checked(audit: ModuleType) -> None:
    assert audit.licence_of("no-such-package-here").result.name == "NOT_CHECKED"


def test_bundled_servers_are_listed_with_their_versions(audit: ModuleType) -> None:
    lines = list(audit.servers())

    products = {line.what.partition(" ")[0] for line in lines}
    assert products == {"redis", "postgresql"}
    assert all(line.what.partition(" ")[2] for line in lines)


@pytest.mark.parametrize(("result", "code"), [("FINE", 0), ("FOUND", 1), ("NOT_CHECKED", 1)])
def test_the_exit_code_is_zero_only_when_all_was_checked(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, result: str, code: int
) -> None:
    line = audit.Line("x", audit.Result[result])
    monkeypatch.setattr(audit, "run_pip_audit", lambda _file: "no connection")
    monkeypatch.setattr(audit, "with_newest", lambda *_: [line])
    monkeypatch.setattr(audit, "licence_of", lambda name: audit.Line(name, audit.Result.FINE))
    monkeypatch.setattr(audit, "servers", list)

    assert audit.main() == code
