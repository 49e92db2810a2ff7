"""Suites of cases that other projects publish with their tests: what one is and how it is judged.

No case is copied into this repository. The source distribution of a package is downloaded from the
package index, as pip is configured, and its test files are read at run time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_CACHE = "longline-others"  # in the folder for temporary files
_TIMEOUT = 300.0  # seconds for one download


Form = Literal["sdist", "wheel"]
"""What of a package is downloaded: its source distribution, or its wheel when it has no tests."""


class Unreachable(RuntimeError):
    """A source distribution cannot be downloaded here; the message says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One case: the expected value of its project, and the result of longline.

    `policy` is a documented difference; its `reason` is listed in the module of the suite.
    """

    case: str
    expected: str
    got: str
    kind: Literal["right", "refused", "wrong", "policy"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases of one package; `judge` gets the folder of its unpacked source distribution.

    `least_right` is the share of the cases (without policies) that must be right, 0.95 for 95 %.
    """

    name: str
    package: str
    version: str
    judge: Callable[[Path], list[Verdict]]
    least_right: float = 0.0
    form: Form = "sdist"


def unpacked(package: str, version: str, form: Form = "sdist") -> Path:
    """Return the folder of an unpacked distribution, downloaded on first use.

    Raises:
        Unreachable: the package index does not have it, or does not respond.
    """
    cache = Path(tempfile.gettempdir()) / _CACHE
    folder = cache / f"{package}-{version}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as name:
            inside = _download(package, version, form, Path(name))
            (_only_folder(inside) if form == "sdist" else inside).rename(folder)
    return folder


def _download(package: str, version: str, form: Form, place: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-binary" if form == "sdist" else "--only-binary", ":all:"]
    command += ["--no-deps", "--dest", str(place), f"{package}=={version}"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or "no reason given").splitlines()[-1]
        raise Unreachable(f"pip cannot download {package} {version}: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"pip did not download {package} {version} in {_TIMEOUT:g} s") from error
    inside = place / "unpacked"
    for archive in place.iterdir():
        if archive.suffix == ".whl":
            shutil.unpack_archive(archive, inside, "zip")
            return inside
        if archive.name.endswith(".tar.gz"):
            shutil.unpack_archive(archive, inside, filter="data")
            return inside
    raise Unreachable(f"{package} {version} has no {form} that can be unpacked here")


def _only_folder(inside: Path) -> Path:
    folders = [path for path in inside.iterdir() if path.is_dir()]
    if len(folders) != 1:
        raise Unreachable(f"{inside.name} does not hold one folder")
    return folders[0]
