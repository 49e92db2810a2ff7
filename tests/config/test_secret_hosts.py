"""Where a secret may go."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from longline.config.secrets import Hosts, Reach, is_loopback
from tests.config.messages import absent

HOSTS: TypeAdapter[tuple[str, ...]] = TypeAdapter(Hosts)


def reach(*hosts: str, allow_http: bool = False) -> Reach:
    return Reach(HOSTS.validate_python(list(hosts)), allow_http)


@pytest.mark.parametrize(
    ("pattern", "url", "is_covered"),
    [
        ("shop.test", "https://shop.test/a?b#c", True),
        ("shop.test", "https://SHOP.test:443/", True),
        ("shop.test:443", "https://shop.test/", True),
        ("shop.test", "http://shop.test/", True),  # http is judged on its own
        ("shop.test", "https://shop.test:8443/", False),
        ("shop.test:8443", "https://shop.test:8443/", True),
        ("shop.test:8443", "https://shop.test/", False),
        ("127.0.0.1:80", "http://127.0.0.1/", True),
        ("shop.test", "https://api.shop.test/", False),
        ("*.shop.test", "https://api.shop.test/", True),
        ("*.shop.test", "https://v1.api.shop.test/", True),
        ("*.shop.test", "https://shop.test/", False),
        ("*.shop.test", "https://evilshop.test/", False),
        ("*.shop.test:8443", "https://api.shop.test:8443/", True),
        ("*.shop.test:8443", "https://api.shop.test/", False),
        ("shop.test", "https://shop.test.evil.test/", False),
        ("shop.test", "https://shop.test@evil.test/", False),
        ("shop.test", "https://evil.test/@shop.test/", False),
        ("shop.test", "https://evil.test#@shop.test/", False),
        ("shop.test", "https://evil.test\\@shop.test/", False),
        ("shop.test", "https://shop.test\t.evil.test/", False),
        ("shop.test", "https://shop.test./", False),
        ("[::1]:8000", "http://[::1]:8000/", True),
        ("bücher.test", "https://xn--bcher-kva.test/", True),
        ("shop.test", "not an address", False),
        ("shop.test", "https://shop.test:99999/", False),
    ],
)
def test_a_host_is_covered_by_exactly_what_was_named(
    pattern: str, url: str, *, is_covered: bool
) -> None:
    assert reach(pattern).covers(url) is is_covered


@pytest.mark.parametrize("url", ["https://shop.test/", "http://127.0.0.1:80/", "http://[::1]/"])
def test_a_secret_goes_where_nobody_can_read_along(url: str) -> None:
    assert reach("shop.test", "127.0.0.1", "[::1]").problem(url) is None


def test_a_secret_goes_unencrypted_only_when_that_is_said() -> None:
    problem = reach("shop.test").problem("http://shop.test/")

    assert absent(str(problem), "shop.test https allow_http") == []
    assert reach("shop.test", allow_http=True).problem("http://shop.test/") is None


def test_any_other_host_is_a_problem() -> None:
    problem = reach("shop.test").problem("https://evil.test/")

    assert absent(str(problem), "evil.test shop.test") == []
    assert "allow_http" not in str(problem)
    assert reach("shop.test").problem("https://[") is not None


@pytest.mark.parametrize(
    "pattern",
    [
        *("*", "*.test", "", " ", "https://a.test", "a.test/b", "a.test/", "u@a.test", "a.test?b"),
        *("a.test#b", "a b", "a.test:x", "*.*.a.test", "a.*.test", "a.test:99999", 7, None),
    ],
)
def test_a_pattern_that_is_none_or_too_wide_is_refused(pattern: Any) -> None:
    with pytest.raises(ValidationError):
        HOSTS.validate_python([pattern])


def test_one_host_needs_no_list_and_none_stands_twice() -> None:
    assert HOSTS.validate_python("Shop.test") == ("shop.test",)
    assert HOSTS.validate_python(["shop.test", "SHOP.test:443"]) == ("shop.test",)
    with pytest.raises(ValidationError, match="hosts"):
        HOSTS.validate_python(7)


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        *(("localhost", True), ("a.localhost", True), ("127.3.2.1", True), ("::1", True)),
        *(("localhost.evil.test", False), ("10.0.0.1", False), ("127.0.0.1.evil.test", False)),
    ],
)
def test_this_machine_is_known_by_its_names(host: str, *, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours
