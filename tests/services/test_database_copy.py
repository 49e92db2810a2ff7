"""A home moves from SQLite to its own PostgreSQL server and back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from longline.config.settings import Settings, prepare_home
from longline.core.errors import NotCopied
from longline.core.model import Record
from longline.services.database_copy import copy_home
from longline.services.doctor.doctor import examine
from longline.services.doctor.findings import CheckContext, Verdict
from longline.services.doctor.servers import database
from longline.services.processes import ServicesBusy, ServicesState, lifecycle_lock
from longline.storage.store import open_store
from tests.servers import free_port
from tests.services.homes import Home

MADE = Record("shop", "a", "https://shop.test/a", {"title": "Thing"}, "first")


def prepared(home: Home) -> Settings:
    settings = home.settings()
    prepare_home(settings)
    return settings


async def records_in(settings: Settings) -> int:
    with open_store(settings.database) as store:
        return await store.records.count()


@pytest.mark.real_time
async def test_a_home_moves_to_its_own_postgres_and_back(home: Home) -> None:
    settings = prepared(home)
    before = settings.database
    with open_store(before) as store:
        await store.records.create(MADE, at=1.0)

    moved = await copy_home(settings, "postgres")

    assert moved.is_in_use
    assert settings.database.startswith("postgresql")
    assert moved.copied.target != settings.database  # which holds a password
    assert await records_in(settings) == 1

    (home.path / "longline.sqlite").rename(home.path / "before.sqlite")
    back = await copy_home(settings, "sqlite")

    assert back.is_in_use
    assert settings.database == before
    assert await records_in(settings) == 1


@pytest.mark.real_time
async def test_copying_is_refused_while_workers_run(home: Home, tmp_path: Path) -> None:
    await asyncio.to_thread(home.up, workers=1)
    settings = home.settings()
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.sqlite'}"

    with pytest.raises(NotCopied) as result:
        await copy_home(settings, elsewhere)
    await asyncio.to_thread(home.down)
    moved = await copy_home(settings, elsewhere)

    assert result.value.target == elsewhere
    assert "`longline down`" in result.value.problem
    assert not moved.is_behind


@pytest.mark.real_time
async def test_up_waits_while_a_home_is_copied(home: Home, tmp_path: Path) -> None:
    settings = prepared(home)
    with open_store(settings.database) as store:
        await store.records.create(MADE, at=1.0)
    result: list[str] = []

    def start(_table: str, _rows: int) -> None:
        with pytest.raises(ServicesBusy) as busy, lifecycle_lock(home.path, timeout=0.1):
            pass
        result.append(str(busy.value))

    await copy_home(settings, f"sqlite:///{tmp_path / 'elsewhere.sqlite'}", on_step=start)

    assert result


@pytest.mark.real_time
async def test_later_writes_to_the_old_database_are_reported(home: Home, tmp_path: Path) -> None:
    settings = prepared(home)
    with open_store(settings.database) as store:
        await store.records.create(MADE, at=1.0)
    target = f"sqlite:///{tmp_path / 'elsewhere.sqlite'}"

    def write(_table: str, _rows: int) -> None:
        with open_store(settings.database) as store:
            asyncio.run(store.events.add_statistics("job", {"requests": 1}))

    assert (await copy_home(settings, target, force=True, on_step=write)).is_behind


def test_the_doctor_says_how_to_start_a_server_of_the_home(home: Home) -> None:
    settings = prepared(home)
    home.file.write(
        ServicesState(database_url=f"postgresql://me:geheim@127.0.0.1:{free_port()}/name")
    )

    (found,) = examine(CheckContext(settings, {}), {"database": database})

    assert found.verdict is Verdict.PROBLEM
    assert "`longline up`" in (found.remedy or "")
    assert "geheim" not in found.sentence
