"""What an export replaces is kept and restored, also after a kill between any two steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from longline.export.export import ExportRequest, export
from longline.export.previous import (
    delete_export,
    drop_previous,
    find_previous,
    keep_previous,
    restore_previous,
)
from tests.export.sample_rows import rows


class Place:
    """A destination, and what is there."""

    def __init__(
        self, request: ExportRequest, read: Callable[[], Any], names: Callable[[], Any]
    ) -> None:
        self.request = request
        self.read = read
        self.names = names

    def write(self, number: int, **more: Any) -> None:
        values = {name: getattr(self.request, name) for name in self.request.__dataclass_fields__}
        export(ExportRequest(**{**values, **more}), rows({"n": number}))


def file_place(tmp_path: Path) -> Place:
    path = tmp_path / "a.csv"
    request = ExportRequest(str(path), columns=("n",))
    return Place(
        request,
        lambda: int(path.read_text().split()[1]) if path.exists() else None,
        lambda: sorted(one.name for one in tmp_path.iterdir()),
    )


def folder_place(tmp_path: Path) -> Place:
    path = tmp_path / "parts"
    request = ExportRequest(str(path), format="csv", partition="n")
    return Place(
        request,
        lambda: int(next(path.glob("n=*")).name[2:]) if path.exists() else None,
        lambda: sorted(one.name for one in tmp_path.iterdir()),
    )


def table_place(address: str) -> Place:
    def ask(query: str) -> list[Any]:
        with psycopg.connect(address) as connection:
            return [row[0] for row in connection.execute(query).fetchall()]

    def names() -> list[Any]:
        return sorted(ask("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"))

    with psycopg.connect(address) as connection:
        for name in names():
            connection.execute(f"DROP TABLE {name} CASCADE")
    request = ExportRequest(address, table="numbers", columns=("n",))
    return Place(
        request, lambda: ask("SELECT n FROM numbers")[0] if "numbers" in names() else None, names
    )


def object_place(bucket: Any) -> Place:
    def names() -> list[str]:
        return sorted(one.key for one in bucket.objects.all())

    def read() -> int | None:
        if "day/a.csv" not in names():
            return None
        return int(bucket.Object("day/a.csv").get()["Body"].read().split()[1])

    return Place(ExportRequest("s3://shop/day/a.csv", columns=("n",)), read, names)


@pytest.fixture(params=["file", "folder", "table", "object"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "table":
        return table_place(request.getfixturevalue("postgres"))
    if request.param == "object":
        return object_place(request.getfixturevalue("bucket"))
    return file_place(tmp_path) if request.param == "file" else folder_place(tmp_path)


def replaced(place: Place, *, times: int = 1) -> dict[str, Any]:
    """Export 2 as a step does, and return its reference."""
    reference = find_previous(place.request, "run/step")
    (first, *_) = reference["parts"]
    table = first["backup"] if "path" not in first and first["existed"] else None
    for _ in range(times):
        keep_previous(place.request, reference)
        place.write(2, previous_table=table)
    return reference


@pytest.mark.parametrize("times", [1, 2])
def test_the_previous_export_is_restored(place: Place, times: int) -> None:
    place.write(1)
    before = place.names()
    reference = replaced(place, times=times)
    found = place.read()

    for _ in range(2):
        restore_previous(place.request, reference)

    assert (found, place.read(), place.names()) == (2, 1, before)


@pytest.mark.parametrize("times", [1, 2])
def test_without_a_previous_one_the_new_export_is_deleted(place: Place, times: int) -> None:
    before = place.names()
    reference = replaced(place, times=times)

    for _ in range(2):
        restore_previous(place.request, reference)

    assert (place.read(), place.names()) == (None, before)


def test_an_export_that_did_not_happen_is_not_undone(place: Place) -> None:
    place.write(1)
    before = place.names()
    reference = find_previous(place.request, "run/step")
    keep_previous(place.request, reference)

    restore_previous(place.request, reference)
    delete_export(place.request, reference)

    assert (place.read(), place.names()) == (1, before)


def test_the_new_export_is_deleted_with_what_it_replaced(place: Place) -> None:
    before = place.names()
    place.write(1)
    reference = replaced(place)

    for _ in range(2):
        delete_export(place.request, reference)

    assert (place.read(), place.names()) == (None, before)


def test_what_was_kept_can_be_dropped(place: Place) -> None:
    place.write(1)
    before = place.names()
    reference = replaced(place)

    for _ in range(2):
        drop_previous(place.request, reference)

    assert (place.read(), place.names()) == (2, before)
