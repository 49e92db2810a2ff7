"""The command line as tests use it, and a source that needs no web."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from longline.cli.main import main

SHOP = '''
"""A shop whose shelves are in this file."""

from longline import Item, Options, Source, layer
from longline.http.errors import RobotsDisallowed


class ShopOptions(Options):
    things: int = 3
    bad: str = ""
    closed: bool = False
    broken: bool = False


class Shop(Source):
    """Things without a web."""

    name = "shop"
    Options = ShopOptions

    async def discover(self, visit):
        if self.options.closed:
            raise RobotsDisallowed("https://shop.test/", "disallowed for all")
        if self.options.broken:
            raise KeyError("sitemap")
        for number in range(self.options.things):
            yield Item(str(number), f"https://shop.test/{number}")

    @layer()
    async def page(self, visit):
        if visit.item.key in self.options.bad.split("+"):
            raise ValueError("no price")
        return {"title": f"Thing [/b] {visit.item.key}", "tax": "=1+1", "price": 5}
'''


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str
    error: BaseException | None = None
    """What ended the command, before it became a sentence; click's errors of usage included."""

    @property
    def last(self) -> Any:
        """The last line of stdout, as JSON."""
        return json.loads(self.out.splitlines()[-1])


class Terminal:
    """Runs commands in this process, as `main` does, errors and exit codes included."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._patch = patch
        self._capture = capture

    def __call__(self, *words: str | Path) -> Answer:
        self._patch.setattr(sys, "argv", ["longline", *map(str, words)])
        code = 0
        errors: list[BaseException] = []
        try:
            main(errors.append)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        out, err = self._capture.readouterr()
        return Answer(code, out, err, errors[0] if errors else None)
