"""What a manifest may say under `browser`, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from longline.http.browser.manifest import BLOCKED, BrowserSpec, Click, Fill, Scroll, WaitFor
from tests.config.messages import absent

WHOLE = """
wait: .item
actions:
  - click: text=Accept all
    optional: true
  - fill: "#q"
    value: "{query}"
  - press: Enter
    at: "#q"
  - select: "#sort"
    value: price
  - scroll: end
  - wait: 0.5
pages:
  - match: /item/
    wait: {selector: h1, timeout: 3}
    actions:
      - {fill: "#zip", value: "{zip}"}
block: [image, trackers, ads.example.com, "*.example.net"]
tabs: 3
"""


def spec(text: str) -> BrowserSpec:
    return BrowserSpec.model_validate(yaml.safe_load(text))


def problem_of(values: Any) -> str:
    with pytest.raises(ValidationError) as raised:
        BrowserSpec.model_validate(values)
    return str(raised.value.errors()[0]["msg"])


def test_a_whole_section_is_understood() -> None:
    browser = spec(WHOLE)

    assert browser.wait is not None
    assert browser.wait.selector == ".item"
    click, fill, _press, _select, scroll, pause = browser.actions
    assert isinstance(click, Click)
    assert click.optional
    assert isinstance(fill, Fill)
    assert isinstance(scroll, Scroll)
    assert isinstance(pause, WaitFor)
    assert pause.wait == 0.5


def test_pictures_fonts_films_and_trackers_are_blocked_unless_it_says_otherwise() -> None:
    assert BrowserSpec().block == BLOCKED == ("image", "media", "font", "trackers")
    assert spec("block: []").block == ()


def test_it_comes_back_from_its_snapshot() -> None:
    browser = spec(WHOLE)

    assert BrowserSpec.model_validate(browser.model_dump(mode="json")) == browser


def test_the_first_pages_that_match_have_steps_of_their_own() -> None:
    browser = spec(WHOLE)

    assert browser.steps_for("https://x/item/1") is browser.pages[0]
    assert browser.steps_for("https://x/list") is browser


def test_names_stand_for_values_in_what_is_filled_in() -> None:
    browser = spec(WHOLE)

    filled = browser.filled({"query": "red shoes", "zip": 1000})

    assert browser.templates() == ["{query}", "price", "{zip}"]
    assert filled.templates() == ["red shoes", "price", "1000"]


def test_a_name_without_a_value_is_said() -> None:
    with pytest.raises(KeyError, match="zip"):
        spec(WHOLE).filled({"query": "red shoes"})


@pytest.mark.parametrize(
    ("written", "data"),
    [
        ({"wait": ">>"}, "'>>' CSS"),
        ({"wait": {"selector": "p", "timeout": 0}}, "0"),
        ({"actions": [{"hover": "p"}]}, "click fill press"),
        ({"actions": ["click"]}, "click fill press"),
        ({"actions": [{"click": "p", "fill": "q"}]}, "click fill press"),
        ({"actions": [{"click": "p", "times": 2}]}, "'times'"),
        ({"actions": [{"click": "text="}]}, "'text=' CSS"),
        ({"actions": [{"fill": "p"}]}, "required"),
        ({"actions": [{"scroll": 0}]}, "'end'"),
        ({"actions": [{"wait": 61}]}, "60"),
        ({"actions": [{"wait": "<"}]}, "'<' CSS"),
        ({"pages": [{"match": "["}]}, "'['"),
        ({"block": ["pictures"]}, "'pictures'"),
        ({"block": ["document"]}, "document"),
        ({"evaluate": "1"}, "'evaluate'"),
    ],
)
def test_what_makes_no_sense_is_refused(written: dict[str, Any], data: str) -> None:
    assert absent(problem_of(written), data) == []
