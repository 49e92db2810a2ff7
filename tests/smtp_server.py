"""A real SMTP server that keeps the mails it accepts, in a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword


class Mailbox:
    """Accepts mails; `acts` are called after the mail of their number has arrived.

    `replies` are responses instead of acceptance, for the next mails.
    """

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.acts: dict[int, Callable[[], None]] = {}
        self.replies: list[str] = []
        self.logins: list[tuple[str, str]] = []
        self.port = 0

    async def handle_DATA(  # noqa: N802  # the name that aiosmtpd calls
        self, _server: Any, _session: Any, envelope: Any
    ) -> str:
        if self.replies:
            return self.replies.pop(0)
        mail = message_from_bytes(envelope.content, policy=default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        self.acts.get(len(self.mails), lambda: None)()
        return "250 accepted"

    def authenticate(self, *details: Any) -> AuthResult:
        data = details[4]
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login.decode(), data.password.decode()))
        return AuthResult(success=data.password == b"right-password", handled=False)

    @property
    def ids(self) -> list[str]:
        return [str(one["Message-ID"]) for one in self.mails]


@contextlib.contextmanager
def mail_server(
    *, tls: ssl.SSLContext | None = None, is_starttls: bool = True, needs_login: bool = False
) -> Iterator[Mailbox]:
    """Run a server on loopback; with `tls`, encrypted by STARTTLS or from the start."""
    mailbox = Mailbox()
    with socket.create_server(("127.0.0.1", 0)) as free:
        mailbox.port = int(free.getsockname()[1])
    options: dict[str, Any] = {}
    if tls is not None and is_starttls:
        options = {"tls_context": tls, "require_starttls": True}
    elif tls is not None:
        options = {"ssl_context": tls}
    if needs_login:
        options |= {
            "authenticator": mailbox.authenticate,
            # The server does not see that a connection is encrypted from its start, and warns.
            "auth_required": is_starttls,
            "auth_require_tls": is_starttls,
        }
    controller = Controller(mailbox, "127.0.0.1", mailbox.port, **options)
    controller.start()
    try:
        yield mailbox
    finally:
        controller.stop()
