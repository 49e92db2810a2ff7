"""The User-Agent: honest, with a contact."""

from __future__ import annotations

import pytest

from longline.core.errors import BadOption
from longline.http.middleware.identity import user_agent


@pytest.mark.parametrize(
    ("contact", "product", "text"),
    [
        ("me@example.org", None, "longline/0.1.0 (+mailto:me@example.org)"),
        ("mailto:me@example.org", None, "longline/0.1.0 (+mailto:me@example.org)"),
        ("https://example.org/bot", None, "longline/0.1.0 (+https://example.org/bot)"),
        ("me@example.org", "prices/2.0", "prices/2.0 longline/0.1.0 (+mailto:me@example.org)"),
    ],
)
def test_the_user_agent_names_the_operator_and_a_contact(
    contact: str, product: str | None, text: str
) -> None:
    assert user_agent("0.1.0", contact, product) == text


@pytest.mark.parametrize(
    ("product", "start"), [(None, "longline/0.1.0 ("), ("prices", "prices longline/0.1.0 (")]
)
def test_without_a_contact_the_user_agent_names_longline(product: str | None, start: str) -> None:
    text = user_agent("0.1.0", None, product)

    assert text.startswith(start)
    assert text.endswith(")")
    assert "+" not in text


@pytest.mark.parametrize(
    "contact",
    [
        *("", "me", "me@localhost", "example.org", "ftp://example.org", "https://", "a@b.c d"),
        *("me@example.org)", "me@exämple.org", "me@example.org\nX-A: b", "https://u:p@example.org"),
    ],
)
def test_an_invalid_contact_is_refused(contact: str) -> None:
    with pytest.raises(BadOption) as refused:
        user_agent("0.1.0", contact)

    assert refused.value.option == "contact"


@pytest.mark.parametrize("product", ["", "a b", "a/b/c", "a(b)", "a\n", "prices/"])
def test_a_product_is_one_word(product: str) -> None:
    with pytest.raises(BadOption) as refused:
        user_agent("0.1.0", None, product)

    assert refused.value.option == "product"
