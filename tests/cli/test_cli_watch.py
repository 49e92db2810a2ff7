"""longline watch: a page becomes a source with a schedule, and its changes reach a webhook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from longline.core.errors import BadOption, ConfigError
from longline.sources.loader import UnknownSource
from longline.storage.events.webhooks import UnknownWebhook
from tests.cli.terminal import Answer, Terminal
from tests.cli.test_cli_sources_new import serving
from tests.devtools.propose.generated_sites import MadeSite

ONE = "<html><h1>Reel</h1><p class='price'>{price}</p></html>"
LIST = "<html><ul>{rows}</ul></html>"


def page(text: str) -> tuple[str, str]:
    return "text/html", text


def rows_of(*names: str) -> tuple[str, str]:
    return page(LIST.format(rows="".join(f"<li class='row'>{name}</li>" for name in names)))


@pytest.fixture
def pages() -> dict[str, tuple[str, str]]:
    return {"/reel": page(ONE.format(price="20 EUR")), "/list": rows_of("b", "a")}


@pytest.fixture
def url(pages: dict[str, tuple[str, str]]) -> Iterator[str]:
    with serving(MadeSite("made", 1, "/", pages)) as url:
        yield url.rstrip("/")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOOK", "whsec_" + "bmV3" * 8)


def watch(longline: Terminal, *words: str) -> Any:
    answer: Answer = longline("watch", *words, "--json")
    assert answer.code == 0, answer.err
    return answer.last


def changes(longline: Terminal, source: str) -> list[dict[str, Any]]:
    answer = longline("run", f"{source}.yaml", "--rate", "unlimited", "--json")
    assert answer.code == 0, answer.err
    job = answer.last["job"]
    found = longline("events", "list", "--type", "source.changed", "--job", job, "--json")
    return [one["data"] for one in found.last]


def test_a_watch_is_a_manifest_with_a_schedule(longline: Terminal, url: str) -> None:
    made = watch(longline, f"{url}/reel", "--select", ".price", "--every", "30m")

    (schedule,) = longline("schedule", "list", "--json").last
    assert (schedule["name"], schedule["trigger"]) == (made["schedule"], "every 30m 00s")
    assert made["samples"] == ["20 EUR"]
    assert made["baseline"] == "queued"
    assert yaml.safe_load(Path(made["manifest"]).read_text("utf-8"))["fields"] == {
        "price": {"css": ".price", "required": True}
    }
    (launch,) = longline("launches", "list", "--json").last
    assert launch["state"] == "queued"


def test_watching_again_changes_only_the_schedule(longline: Terminal, url: str) -> None:
    first = watch(longline, f"{url}/reel", "--select", ".price")

    second = watch(longline, f"{url}/reel", "--select", ".price", "--every", "2h")

    assert first["manifest"] == second["manifest"]
    (schedule,) = longline("schedule", "list", "--json").last
    assert schedule["trigger"] == "every 2h 00m"


def test_a_changed_value_is_reported_once(
    longline: Terminal, url: str, pages: dict[str, tuple[str, str]]
) -> None:
    watch(longline, f"{url}/reel", "--select", ".price", "--name", "reel")
    assert changes(longline, "reel") == []
    assert changes(longline, "reel") == []
    pages["/reel"] = page(ONE.format(price="18 EUR"))

    (found,) = changes(longline, "reel")

    assert (found["changed"], found["new"], found["gone"]) == (1, 0, 0)
    assert found["records"][0]["fields"] == [{"field": "price", "old": "20 EUR", "new": "18 EUR"}]
    assert changes(longline, "reel") == []


def test_the_order_of_elements_does_not_matter(
    longline: Terminal, url: str, pages: dict[str, tuple[str, str]]
) -> None:
    watch(longline, f"{url}/list", "--select", ".row", "--name", "rows")
    changes(longline, "rows")
    pages["/list"] = rows_of("a", "b")
    assert changes(longline, "rows") == []
    pages["/list"] = rows_of("c", "b")

    (found,) = changes(longline, "rows")

    listed = {(one["change"], *one["fields"][0].values()) for one in found["records"]}
    assert listed == {("new", "row", "c"), ("gone", "row", "a")}


def test_ignored_fields_are_not_changes(
    longline: Terminal, url: str, pages: dict[str, tuple[str, str]]
) -> None:
    options = ("--select", ".price", "--select", "title=h1", "--ignore", "price")
    watch(longline, f"{url}/reel", *options, "--name", "reel")
    changes(longline, "reel")
    pages["/reel"] = page(ONE.format(price="18 EUR"))
    assert changes(longline, "reel") == []
    pages["/reel"] = page(ONE.format(price="17 EUR").replace("Reel", "Rod"))

    (found,) = changes(longline, "reel")

    assert [one["field"] for one in found["records"][0]["fields"]] == ["title"]


def test_a_vanished_element_fails_the_run(
    longline: Terminal, url: str, pages: dict[str, tuple[str, str]]
) -> None:
    watch(longline, f"{url}/reel", "--select", ".price", "--name", "reel")
    changes(longline, "reel")
    pages["/reel"] = page("<html><h1>Reel</h1></html>")

    answer = longline("run", "reel.yaml", "--json")

    assert (answer.code, answer.last["quarantined"]) == (1, 1)
    assert longline("events", "list", "--type", "source.changed", "--json").last == []


def test_a_webhook_gets_the_changes_of_the_source(longline: Terminal, url: str) -> None:
    add = ("webhooks", "add", "hooks", "https://hooks.test/", "--secret", "env:HOOK")
    longline(*add, "--type", "job.failed")

    made = watch(longline, f"{url}/reel", "--select", ".price", "--notify", "webhook:hooks")

    subscribers = longline("events", "subscribers", "--json").last
    (mine,) = [one for one in subscribers if one["name"].startswith("watch/")]
    assert made["notify"] == [{"webhook": "hooks", "by_own_filter": False}]
    assert not any("hooks" in one for one in made["warnings"])
    wanted = mine["wanted"]
    assert (wanted["types"], wanted["source"]) == (["source.changed"], made["source"])


def test_a_webhook_that_gets_all_events_is_not_notified_twice(longline: Terminal, url: str) -> None:
    longline("webhooks", "add", "hooks", "https://hooks.test/", "--secret", "env:HOOK")

    made = watch(longline, f"{url}/reel", "--select", ".price", "--notify", "webhook:hooks")

    assert made["notify"] == [{"webhook": "hooks", "by_own_filter": True}]
    assert any("hooks" in one for one in made["warnings"])
    assert len(longline("events", "subscribers", "--json").last) == 1


def test_a_watch_can_be_stopped(longline: Terminal, url: str) -> None:
    longline(
        *("webhooks", "add", "hooks", "https://hooks.test/", "--secret", "env:HOOK"),
        *("--type", "job.failed"),
    )
    made = watch(longline, f"{url}/reel", "--select", ".price", "--notify", "webhook:hooks")

    watch(longline, made["manifest"], "--stop")

    assert longline("schedule", "list", "--json").last == []
    assert len(longline("events", "subscribers", "--json").last) == 1
    again = longline("watch", made["source"], "--stop")
    assert (again.code, type(again.error)) == (2, BadOption)


def test_without_a_selector_a_manifest_is_proposed(
    longline: Terminal, url: str, pages: dict[str, tuple[str, str]]
) -> None:
    cards = "".join(
        f"<div class='card'><h2>Reel {n}</h2><p class='cost'>{n}0 EUR</p></div>" for n in range(9)
    )
    pages["/cards"] = page(f"<html><main>{cards}</main></html>")

    made = watch(longline, f"{url}/cards", "--name", "cards")

    assert made["found"] == 9
    assert Path("cards.yaml").is_file()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--select", ".nope"), BadOption),
        (("--select", ">>"), BadOption),
        (("--select", ".price", "--select", "price=h1"), BadOption),
        (("--select", ".price", "--ignore", "color"), BadOption),
        (("--select", ".price", "--name", "../x"), BadOption),
        (("--select", ".price", "--notify", "mail:me"), BadOption),
        (("--select", ".price", "--notify", "webhook:none"), UnknownWebhook),
        (("--select", ".price", "--every", "often"), BadOption),
        (("--select", ".price", "--every", "1h", "--cron", "* * * * *"), BadOption),
        (("--select", ".price", "--timezone", "Europe/Sofia"), BadOption),
    ],
)
def test_a_bad_watch_is_one_error_and_leaves_nothing(
    longline: Terminal, url: str, words: tuple[str, ...], error: type[Exception]
) -> None:
    answer = longline("watch", f"{url}/reel", *words)

    assert type(answer.error) is error
    assert list(Path().glob("*.yaml")) == []
    assert longline("schedule", "list", "--json").last == []


def test_a_source_that_exists_is_watched_as_it_is(longline: Terminal, shop: Path) -> None:
    made = watch(longline, str(shop), "--cron", "0 6 * * *", "--timezone", "Europe/Sofia")

    (schedule,) = longline("schedule", "list", "--json").last
    assert (schedule["name"], schedule["timezone"]) == (made["schedule"], "Europe/Sofia")
    assert type(longline("watch", str(shop), "--select", "h1").error) is BadOption
    assert type(longline("watch", "unknown").error) is UnknownSource
    assert issubclass(UnknownSource, ConfigError)
