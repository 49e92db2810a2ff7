"""Send notifications by e-mail, with SMTP."""

from __future__ import annotations

import logging
import smtplib
import ssl
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from pathlib import Path

from longline.core.clock import utc_datetime
from longline.core.errors import ConfigError
from longline.core.output import sanitize
from longline.http.transport import ssl_context
from longline.monitoring.alerts.configuration import MailChannel

_LOG = logging.getLogger(__name__)
_TIMEOUT = 10.0  # seconds for each response of the server
_DELIVERED = 250
_LONGEST_SUBJECT = 200  # characters
_LONGEST_PROBLEM = 300


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail to be sent; `message_id` is the same for all attempts, and `at` is its date."""

    message_id: str
    at: float
    title: str
    text: str
    html: str


def send_mail(
    channel: MailChannel, mail: Mail, ca_file: Path | None
) -> tuple[int | None, str | None]:
    """Send a mail now, and wait for the server's response; it blocks.

    Returns:
        The status of the server, None without a response, and what failed.
    """
    try:
        with _connect(channel, ca_file) as server:
            if channel.security == "starttls":
                server.starttls(context=_tls(ca_file))
            if channel.user is not None and channel.password is not None:
                server.login(channel.user, channel.password.read().get_secret_value())
            refused = server.send_message(compose_mail(channel, mail))
    except smtplib.SMTPRecipientsRefused as error:
        code, text = next(iter(error.recipients.values()))
        return code, _problem(f"the server refuses all recipients: {_decoded(text)}")
    except smtplib.SMTPResponseException as error:
        return error.smtp_code, _problem(f"{error.smtp_code} {_decoded(error.smtp_error)}")
    except smtplib.SMTPNotSupportedError as error:
        return None, _problem(str(error))
    except (OSError, ConfigError, smtplib.SMTPException) as error:
        return None, _problem(str(error) or type(error).__name__)
    if refused:  # the others have it, and another attempt would send it to them again
        _LOG.warning("%s refuses recipients: %s", channel.host, ", ".join(refused))
    return _DELIVERED, None


def compose_mail(channel: MailChannel, mail: Mail) -> EmailMessage:
    """Return a mail with a plain and an HTML part; its headers have no text with line ends."""
    message = EmailMessage(policy=SMTP)
    domain = channel.sender.rpartition("@")[2]
    message["From"] = Address("longline", addr_spec=channel.sender)
    message["To"] = ", ".join(channel.to)
    subject = " ".join(sanitize(mail.title, is_line=True).split())[:_LONGEST_SUBJECT]
    message["Subject"] = f"[longline] {subject}"
    message["Date"] = format_datetime(utc_datetime(mail.at))
    message["Message-ID"] = f"<{mail.message_id}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(sanitize(mail.text))
    message.add_alternative(sanitize(mail.html), subtype="html")
    return message


def _connect(channel: MailChannel, ca_file: Path | None) -> smtplib.SMTP:
    if channel.security == "tls":
        return smtplib.SMTP_SSL(
            channel.host, channel.server_port, timeout=_TIMEOUT, context=_tls(ca_file)
        )
    return smtplib.SMTP(channel.host, channel.server_port, timeout=_TIMEOUT)


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    context = ssl_context(ca_file)
    return context if isinstance(context, ssl.SSLContext) else ssl.create_default_context()


def _decoded(text: bytes | str) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text


def _problem(text: str) -> str:
    line = " ".join(sanitize(text).split())
    return line[:_LONGEST_PROBLEM]
