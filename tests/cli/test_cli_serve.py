"""`longline serve` and `longline tokens`: what they refuse, and what they print."""

from __future__ import annotations

import socket

import pytest

from tests.cli.terminal import Terminal


@pytest.mark.parametrize(
    "words",
    [
        ("--no-web", "--no-executor"),
        ("--no-executor", "--once"),
        ("--address", "nonsense"),
        ("--address", "127.0.0.1:99999"),
    ],
)
def test_serve_refuses_options_that_make_no_sense(
    longline: Terminal, words: tuple[str, ...]
) -> None:
    assert longline("serve", *words).code == 2


def test_serve_names_an_address_that_is_in_use(longline: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        answer = longline("serve", "--address", address)

    assert answer.code == 2
    assert address in answer.err


def test_serve_refuses_an_open_address_without_tokens(longline: Terminal) -> None:
    answer = longline("serve", "--address", "0.0.0.0:0")

    assert answer.code == 2
    assert "longline tokens add" in answer.err


def test_a_token_is_listed_without_its_secret(longline: Terminal) -> None:
    made = longline("tokens", "add", "ci", "--role", "operate", "--expires", "90d", "--json")
    listed = longline("tokens", "list", "--json")

    assert made.last["token"].startswith("ll_")
    assert [one["name"] for one in listed.last] == ["ci"]
    assert made.last["token"] not in listed.out


def test_a_revoked_token_is_not_valid(longline: Terminal) -> None:
    longline("tokens", "add", "ci")

    answer = longline("tokens", "revoke", "ci", "--json")

    assert answer.last["revoked_at"] is not None
    assert longline("tokens", "revoke", "other").code == 2


def test_two_valid_tokens_cannot_share_a_name(longline: Terminal) -> None:
    longline("tokens", "add", "ci")

    assert longline("tokens", "add", "ci").code == 2
