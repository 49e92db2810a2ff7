"""No password of an address is shown, wherever in it it stands."""

from __future__ import annotations

import pytest

from longline.core.redaction import redact_url


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
