"""Suites of cases that other projects publish with their tests: what one is and how it is judged.

No case is copied into this repository. The source distribution of a package is downloaded from the
package index, as pip is configured, and its test files are read at run time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_CACHE = "longline-others"  # in the folder for temporary files
_TIMEOUT = 300.0  # seconds for one download


class Unreachable(RuntimeError):
    """A source distribution cannot be downloaded here; the message says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One case: what its project expects, and what longline does with it.

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


def unpacked(package: str, version: str) -> Path:
    """Return the folder of a source distribution, downloaded on first use.

    Raises:
        Unreachable: the package index has it not, or does not answer.
    """
    cache = Path(tempfile.gettempdir()) / _CACHE
    folder = cache / f"{package}-{version}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as name:
            _download(package, version, Path(name)).rename(folder)
    return folder


def _download(package: str, version: str, place: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-binary", ":all:", "--dest", str(place), f"{package}=={version}"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or "no reason given").splitlines()[-1]
        raise Unreachable(f"pip cannot download {package} {version}: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"pip did not download {package} {version} in {_TIMEOUT:g} s") from error
    archive = next((path for path in place.iterdir() if path.name.endswith(".tar.gz")), None)
    if archive is None:
        raise Unreachable(f"{package} {version} has no source distribution in .tar.gz")
    inside = place / "unpacked"
    with tarfile.open(archive) as tar:
        tar.extractall(inside, filter="data")
    folders = [path for path in inside.iterdir() if path.is_dir()]
    if len(folders) != 1:
        shutil.rmtree(inside)
        raise Unreachable(f"{package} {version} does not unpack into one folder")
    return folders[0]
