"""Reload: everything is sound and counts from now on, or the last sound picture stays."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from longline.config.library import Entry, Library, Snapshot, read_entry
from longline.config.settings import Settings
from longline.core.errors import BadFile, BadOption, ConfigError
from tests.config.messages import absent

HALF = "manifest: html\nname: {name}\nversion: v{version}\nstart: https://{name}.test/\n"
# What is required stands last: no half of the file is sound.
WHOLE = HALF + "fields:\n  title: h1\n"


def write(folder: Path, name: str, version: int, *, form: str = WHOLE) -> None:
    (folder / f"{name}.yaml").write_text(form.format(name=name, version=version))


def edit_both(folder: Path, version: int, between: Callable[[], object]) -> None:
    """Edit two files that belong together, as an editor would: one is half-written meanwhile."""
    write(folder, "apples", version, form=HALF)
    between()
    write(folder, "pears", version)
    between()
    write(folder, "apples", version)
    between()


def versions(snapshot: Snapshot) -> set[str]:
    return {entry.values["version"] for entry in snapshot.entries.values()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LONGLINE_CONFIG", raising=False)
    folder = tmp_path / "sources"
    folder.mkdir()
    write(folder, "apples", 0)
    write(folder, "pears", 0)
    return folder


def library(folder: Path, **hooks: Any) -> Library:
    return Library(lambda: Settings(sources=(folder,)), **hooks)


def test_an_edit_counts_after_a_reload_and_not_for_who_has_the_old_picture(folder: Path) -> None:
    shelf = library(folder)
    before = shelf.snapshot
    write(folder, "apples", 1)

    told = shelf.reload()

    assert (told.is_new, told.problems) == (True, ())
    assert before.get("apples").values["version"] == "v0"
    assert shelf.snapshot.get("apples").values["version"] == "v1"
    assert shelf.snapshot.number == before.number + 1


def test_a_broken_edit_keeps_the_last_good_picture_and_says_so(folder: Path) -> None:
    heard: list[ConfigError] = []
    shelf = library(folder, on_problem=heard.append)
    before = shelf.snapshot
    write(folder, "pears", 1)
    write(folder, "apples", 1, form=HALF)

    told = shelf.reload()

    assert shelf.snapshot is before
    (problem,) = heard
    assert isinstance(problem, BadFile)
    assert (problem.path, problem.line) == (str(folder / "apples.yaml"), 1)
    assert "fields" in problem.problem
    assert told.problems == tuple(heard)


def test_when_nothing_has_changed_nothing_does(folder: Path) -> None:
    heard: list[Snapshot] = []
    shelf = library(folder, on_change=heard.append)
    before = shelf.snapshot

    assert not shelf.reload().is_new
    assert shelf.snapshot is before
    assert heard == []


def test_files_come_and_go(folder: Path) -> None:
    heard: list[Snapshot] = []
    shelf = library(folder, on_change=heard.append)
    (folder / "pears.yaml").unlink()
    (folder / "nightly.yml").write_text("source: n8n\nlimit: 5\n")
    (folder / ".apples.yaml.swp").write_text("not [ yaml")

    shelf.reload()

    assert {name: one.kind for name, one in shelf.snapshot.entries.items()} == {
        "apples": "html",
        "nightly": "job",
    }
    assert heard == [shelf.snapshot]


def test_a_picture_cannot_be_changed(folder: Path) -> None:
    snapshot = library(folder).snapshot

    snapshot.get("apples").values["version"] = "mine"

    assert snapshot.get("apples").values["version"] == "v0"
    with pytest.raises(TypeError):
        snapshot.entries["mine"] = snapshot.get("apples")  # type: ignore[index]  # that is the test
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.number = 5  # type: ignore[misc]  # that is the test


def test_two_files_of_one_name_are_not_taken(folder: Path) -> None:
    (folder / "second.yaml").write_text(WHOLE.format(name="pears", version=1))

    with pytest.raises(BadFile) as refused:
        library(folder)

    assert refused.value.path == str(folder / "second.yaml")
    assert (refused.value.line, refused.value.column) == (2, 1)
    assert absent(refused.value.problem, "name: pears.yaml 'pears'") == []


def test_a_secret_is_looked_for_when_a_source_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_KEY", raising=False)
    auth = "auth:\n  kind: bearer\n  hosts: [shop.test]\n  token: env:SHOP_KEY\n"
    (folder / "shop.yaml").write_text(WHOLE.format(name="shop", version=1) + auth)
    snapshot = library(folder).snapshot

    with pytest.raises(BadFile) as refused:
        snapshot.load("shop")
    monkeypatch.setenv("SHOP_KEY", "x")

    assert (refused.value.line, refused.value.column) == (10, 3)
    assert absent(str(refused.value), "shop.yaml auth.token: env:SHOP_KEY") == []
    assert snapshot.load("shop").name == "shop"


def test_an_unknown_name_is_refused_with_the_nearest_one(folder: Path) -> None:
    with pytest.raises(BadOption) as refused:
        library(folder).snapshot.load("aples")

    assert absent(refused.value.problem, "'aples' 'apples'") == []


def test_broken_settings_keep_the_last_good_picture(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LONGLINE_SOURCES", raising=False)
    shelf = Library()
    before = shelf.snapshot
    (folder.parent / "longline.yaml").write_text("sources: [else")

    told = shelf.reload()

    assert shelf.snapshot is before
    assert [type(one) for one in told.problems] == [BadFile]


def test_a_hundred_edits_and_reverts_show_no_reader_a_mixed_picture(folder: Path) -> None:
    """Reload at every step of an edit, half-written files included."""
    shelf = library(folder)
    seen: list[set[str]] = []

    def look() -> None:
        shelf.reload()
        seen.append(versions(shelf.snapshot))

    for number in range(100):
        edit_both(folder, number % 2, look)
        assert versions(shelf.snapshot) == {f"v{number % 2}"}

    assert len(seen) == 300
    assert {len(one) for one in seen} == {1}


def test_an_edit_between_two_reads_is_not_mixed_with_what_was_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = library(folder)
    edits = iter([1])

    def read_and_edit(path: Path) -> Entry:
        entry = read_entry(path)
        for version in edits:  # once, after the first file was read and before the second is
            edit_both(folder, version, lambda: None)
        return entry

    # The only way to be between two reads every time.
    monkeypatch.setattr("longline.config.library.read_entry", read_and_edit)

    assert versions(shelf.reload().snapshot) == {"v1"}


def test_files_that_never_stand_still_are_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = library(folder)
    before = shelf.snapshot
    numbers = itertools.count(1)

    def read_and_edit(path: Path) -> Entry:
        entry = read_entry(path)
        edit_both(folder, next(numbers), lambda: None)
        return entry

    monkeypatch.setattr("longline.config.library.read_entry", read_and_edit)

    told = shelf.reload()

    assert shelf.snapshot is before
    (problem,) = told.problems
    assert isinstance(problem, BadOption)
    assert problem.option == "sources"


@pytest.mark.timeout(60)
def test_reloads_and_readers_beside_a_hundred_edits_see_no_mixed_picture(folder: Path) -> None:
    shelf = library(folder)
    is_over = threading.Event()

    def keep_looking(look: Callable[[], Snapshot]) -> list[set[str]]:
        seen = []
        while not is_over.is_set():
            seen.append(versions(look()))
        return seen

    with ThreadPoolExecutor(3) as pool:
        reloading = pool.submit(keep_looking, lambda: shelf.reload().snapshot)
        reading = pool.submit(keep_looking, lambda: shelf.snapshot)
        for number in range(100):
            edit_both(folder, number, lambda: None)
        is_over.set()
    shelf.reload()

    assert {len(one) for one in [*reloading.result(), *reading.result()]} == {1}
    assert versions(shelf.snapshot) == {"v99"}


@pytest.mark.real_time
@pytest.mark.timeout(60)
async def test_a_watched_folder_is_reloaded_when_a_file_changes(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    changed, broken, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    shelf = library(
        folder,
        on_change=lambda _: loop.call_soon_threadsafe(changed.set),
        on_problem=lambda _: loop.call_soon_threadsafe(broken.set),
    )
    watching = asyncio.create_task(shelf.watch(stop=stop))

    await written_until(broken, lambda: write(folder, "apples", 1, form=HALF))
    assert versions(shelf.snapshot) == {"v0"}
    await written_until(changed, lambda: edit_both(folder, 1, lambda: None))
    stop.set()
    await watching

    assert versions(shelf.snapshot) == {"v1"}


async def written_until(heard: asyncio.Event, edit: Callable[[], object]) -> None:
    """Edit until it is heard: the system says nowhere when a watch has begun."""
    while not heard.is_set():
        edit()
        try:
            await asyncio.wait_for(heard.wait(), timeout=2)
        except TimeoutError:
            continue
