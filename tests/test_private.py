"""Files of a home are private from the start, whatever the umask says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.core.files import (
    exposed_in,
    make_private,
    make_private_file,
    make_private_folder,
    private_opener,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_files_and_folders_are_for_their_owner(tmp_path: Path) -> None:
    home = tmp_path / "a" / "home"
    make_private_folder(home)
    make_private_file(home / "one")
    with open(home / "two", "xb", opener=private_opener):  # Path has no opener
        pass

    assert (mode(home), mode(home / "one"), mode(home / "two")) == (0o700, 0o600, 0o600)


@pytest.mark.usefixtures("umask")
def test_a_group_shares_what_is_made_in_its_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    make_private_folder(tmp_path / "below")
    make_private_file(tmp_path / "below" / "one")

    assert mode(tmp_path / "below") & 0o777 == 0o770
    assert mode(tmp_path / "below" / "one") == 0o660
    assert list(exposed_in(tmp_path)) == []


def test_a_home_is_private_even_in_a_folder_of_a_group(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)

    make_private_folder(tmp_path / "home", is_home=True)

    assert mode(tmp_path / "home") & 0o777 == 0o700


def test_a_home_behind_a_link_is_checked(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real").chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert [one.path for one in exposed_in(tmp_path / "link")] == [(tmp_path / "real").resolve()]


def test_a_world_readable_folder_is_not_a_group_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    make_private_file(tmp_path / "one")

    assert mode(tmp_path / "one") == 0o600


def test_existing_files_keep_mode_and_content(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("x")
    (tmp_path / "one").chmod(0o644)

    make_private_file(tmp_path / "one")
    make_private_folder(tmp_path)

    assert (mode(tmp_path / "one"), (tmp_path / "one").read_text()) == (0o644, "x")


def test_a_file_in_the_way_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")

    with pytest.raises(NotADirectoryError):
        make_private_folder(tmp_path / "home")


@pytest.fixture
def old_home(tmp_path: Path) -> Path:
    """A home as older versions made it, with a link out of it."""
    home, outside = tmp_path / "home", tmp_path / "outside"
    outside.write_text("")
    outside.chmod(0o644)
    (home / "archive").mkdir(parents=True)
    (home / "longline.sqlite").write_text("")
    (home / "archive" / "one.warc.gz").write_text("")
    (home / "link").symlink_to(outside)
    home.chmod(0o755)
    for path in home.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    return home


def test_what_others_can_read_is_found_and_fixed(old_home: Path) -> None:
    found = list(exposed_in(old_home))
    fixed = [make_private(one) for one in found]

    assert {one.path.name for one in found} == {
        "home",
        "archive",
        "longline.sqlite",
        "one.warc.gz",
    }
    assert all(fixed)
    assert list(exposed_in(old_home)) == []
    assert mode(old_home / "archive" / "one.warc.gz") == 0o600
    assert mode(old_home.parent / "outside") == 0o644


def test_a_shared_home_is_only_closed_to_others(old_home: Path) -> None:
    old_home.chmod(0o770)
    (old_home / "longline.sqlite").chmod(0o664)

    for one in exposed_in(old_home):
        make_private(one)

    assert mode(old_home) == 0o770
    assert mode(old_home / "longline.sqlite") == 0o660


def test_an_executable_only_folder_is_not_exposed(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)

    assert list(exposed_in(tmp_path)) == []
