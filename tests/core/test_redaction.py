"""No password of an address is shown, wherever in it it stands."""

from __future__ import annotations

import pytest
from yarl import URL

from longline.core.redaction import SecretRedactor, redact_url

SECRET = 'sesame"/ ?&=+%é:@;,7f3a'  # noqa: S105  # not a real one
SENT = f"http://a.test{URL('http://a.test').with_path(f'/{SECRET}').raw_path}"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:geheim@db/x", "postgresql://me:***@db/x"),
        ("redis://:geheim@db:6379/0", "redis://:***@db:6379/0"),
        ("postgresql://me:gehe/im?@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me:geheim@gehe@db/x", "postgresql://me:***@db/x"),
        ("postgresql://db/x?password=geheim&user=me", "postgresql://db/x?password=***&user=me"),
        (
            "postgresql://db/x?user=me&sslpassword=geheim",
            "postgresql://db/x?user=me&sslpassword=***",
        ),
        ("postgresql://db/x?pass%77ord=geheim", "postgresql://db/x?pass%77ord=***"),
        ("redis://db/0?ssl_password=geheim", "redis://db/0?ssl_password=***"),
        ("postgresql://me@db/x?passfile=/home/me/.pgpass", None),
        ("postgresql://me@db:5432/x", None),
        ("sqlite:////home/me/longline.sqlite", None),
        ("longline/1.0 (+mailto:me@example.org)", None),
    ],
)
def test_only_passwords_are_left_out(address: str, shown: str | None) -> None:
    assert redact_url(address) == (shown or address)


@pytest.mark.parametrize("url", [URL("http://a.test/").with_query(key=SECRET), URL(SENT)])
def test_a_secret_is_found_in_a_url_as_it_is_sent(url: URL) -> None:
    assert "7f3a" not in SecretRedactor([SECRET]).text(str(url))
