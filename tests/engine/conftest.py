"""A home, its database, and the beginning of a job on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.config.settings import Settings, load_settings, prepare_home
from longline.storage.store import Store, open_store
from tests.engine.chunk_process import Begin, starter
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = load_settings(home=tmp_path)
    prepare_home(settings)
    return settings


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.database) as store:
        yield store


@pytest.fixture
def begun(store: Store, settings: Settings, clock: VirtualClock, site: ScriptedSite) -> Begin:
    """Begin a job of the page source on the cluster."""
    return starter(store, settings, clock, site)
