"""The key `alerts` of the settings file: channels, groups, quiet hours and escalation."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import logging
import re
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, time
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from longline.config.documents import Document, check, read_document
from longline.config.secrets import SecretRef, is_loopback
from longline.config.settings import Settings, file_model, settings_file
from longline.config.times import Seconds, ZoneName
from longline.config.validation import (
    StrictModel,
    invalid,
    one_or_several,
    select_problem,
    short_for,
)
from longline.core.errors import BadFile, BadOption
from longline.monitoring.alerts.rules import RULE_KINDS, RuleSettings, Severity, make_rules
from longline.storage.store import Store

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_CHANNEL = re.compile(rf"(webhook|mail|apprise):{_NAME.pattern}")
_HOME = "home"  # the subject of rules about the home itself
_WILDCARD = re.compile(r"[*?\[]")
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


def _check_address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise invalid("write an e-mail address such as ops@example.com")
    return text


def _check_channel(text: str) -> str:
    if not _CHANNEL.fullmatch(text):
        raise invalid("a channel is written as mail:NAME, webhook:NAME or apprise:NAME")
    return text


def _check_channel_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise invalid("use at most 64 letters, digits, dots, dashes and underscores")
    return text


def check_subject(pattern: str) -> str:
    """Return a pattern of subjects if it fits any, such as `source/shop*`.

    Raises:
        ValueError: it fits none, so a notification or silence would never apply.
    """
    kinds = {one.subject for one in RULE_KINDS.values()} - {_HOME}
    beginnings = [_HOME, *(f"{kind}/" for kind in sorted(kinds))]
    fixed = _WILDCARD.split(pattern)[0]
    if fixed == pattern:
        fits = pattern == _HOME or pattern.startswith(tuple(beginnings[1:]))
    else:
        fits = any(one.startswith(fixed) or fixed.startswith(one) for one in beginnings)
    if not fits:
        raise invalid(f"a subject is {_HOME}, or begins with one of {', '.join(beginnings[1:])}")
    return pattern


def _parse_clock_time(value: Any) -> time:
    if not isinstance(value, str) or not re.fullmatch(r"\d\d:\d\d", value):
        raise invalid("write a time of day such as 22:00")
    try:
        return time.fromisoformat(value)
    except ValueError:
        raise invalid("write a time of day such as 22:00") from None


Address = Annotated[str, AfterValidator(_check_address)]
Channel = Annotated[str, AfterValidator(_check_channel)]
ChannelName = Annotated[str, AfterValidator(_check_channel_name)]
ClockTime = Annotated[time, BeforeValidator(_parse_clock_time, json_schema_input_type=str)]


class MailChannel(StrictModel):
    """An SMTP server, and who gets the mails.

    `security` is starttls, tls (encrypted from the start) or none. The default `port` is 587, 465
    or 25.
    """

    host: str = Field(min_length=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = Field(default=None, min_length=1)
    password: SecretRef | None = None
    sender: Address = Field(alias="from")
    to: Annotated[tuple[Address, ...], BeforeValidator(one_or_several)] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_login(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise invalid("a login needs `user` and `password`")
        if self.password is not None and self.security == "none" and not is_loopback(self.host):
            raise invalid("the password would be sent unencrypted; use security: starttls or tls")
        return self

    @property
    def server_port(self) -> int:
        """The port, or the default one."""
        return self.port or _PORTS[self.security]


class AppriseChannel(StrictModel):
    """Apprise URLs by reference, since they contain secrets."""

    urls: Annotated[
        tuple[SecretRef, ...],
        BeforeValidator(lambda value: value if isinstance(value, list | tuple) else [value]),
    ] = Field(min_length=1)


def _accept_urls(value: Any) -> Any:
    is_short = not isinstance(value, dict) or value.keys() <= {"env", "file", "keyring"}
    return {"urls": value} if is_short else value


class Route(StrictModel):
    """A channel, and which alerts it gets: from a severity on, about subjects of a pattern."""

    channel: Channel
    severity: Severity = "warning"
    subject: Annotated[str, AfterValidator(check_subject)] = Field(default="*", min_length=1)


class QuietHours(StrictModel):
    """Hours of each day without notifications; critical alerts pass unless `critical` is hold."""

    start: ClockTime = Field(alias="from")
    end: ClockTime = Field(alias="to")
    timezone: ZoneName = "UTC"
    critical: Literal["pass", "hold"] = "pass"

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if self.start == self.end:
            raise invalid("`from` and `to` are the same time")
        return self

    def includes(self, at: float) -> bool:
        """Return whether a time is in the quiet hours."""
        local = datetime.fromtimestamp(at, ZoneInfo(self.timezone)).time()
        if self.start < self.end:
            return self.start <= local < self.end
        return local >= self.start or local < self.end


class Escalation(StrictModel):
    """Channels that also get a critical alert that fires for longer than `after`."""

    after: Seconds = Field(gt=0)
    to: Annotated[tuple[Channel, ...], BeforeValidator(one_or_several)] = Field(min_length=1)


class AlertSettings(StrictModel):
    """Who is notified of alerts, and when; without `notify`, alerts are only listed."""

    rules: RuleSettings = Field(default_factory=dict)
    """Changed and additional rules."""
    mail: dict[ChannelName, MailChannel] = Field(default_factory=dict)
    apprise: dict[ChannelName, Annotated[AppriseChannel, BeforeValidator(_accept_urls)]] = Field(
        default_factory=dict
    )
    notify: Annotated[
        tuple[Annotated[Route, short_for("channel")], ...], BeforeValidator(one_or_several)
    ] = ()
    group_by: Literal["subject", "rule", "all"] = "subject"
    """What the alerts of one notification have in common."""
    group_wait: Seconds = 30.0
    """How long a group waits for further alerts before its first notification."""
    group_interval: Seconds = 300.0
    """Minimum time between two notifications of a group."""
    repeat: Seconds | None = Field(default=86_400.0, gt=0)
    """Time after which alerts that still fire are notified again; null: never."""
    resolve_after: Seconds = 300.0
    """How long a problem must be absent before its alert is resolved."""
    quiet_hours: QuietHours | None = None
    escalate: Escalation | None = None

    @property
    def channels(self) -> list[str]:
        """The channels that may get notifications, each once."""
        escalated: Iterable[str] = () if self.escalate is None else self.escalate.to
        return [*dict.fromkeys([*(one.channel for one in self.notify), *escalated])]

    @property
    def own_channels(self) -> list[str]:
        """The channels that are defined here: all but webhooks."""
        return [
            *(f"mail:{name}" for name in self.mail),
            *(f"apprise:{name}" for name in self.apprise),
        ]

    def secrets(self) -> list[SecretRef]:
        """Return the secrets of all channels."""
        passwords = [one.password for one in self.mail.values() if one.password is not None]
        return passwords + [url for one in self.apprise.values() for url in one.urls]


def alert_settings_in(document: Document, webhooks: Collection[str] | None = None) -> AlertSettings:
    """Return what a settings file says about alerts.

    Args:
        document: the settings file.
        webhooks: the names of all webhooks; None if unknown: those of channels are not checked.

    Raises:
        BadFile: it is invalid; of several problems, the first in the file is reported.
    """
    node = document.node(("alerts",))
    if node is None or node.content is None:
        return AlertSettings()
    try:
        settings = AlertSettings.model_validate(node.plain())
    except ValidationError as error:
        found = select_problem(error, node)
        loc, near = ("alerts", *found.loc), ("alerts", *found.near)
        raise document.error(loc, found.problem, near) from None
    named = {("notify", n): one.channel for n, one in enumerate(settings.notify)}
    if settings.escalate is not None:
        named |= {("escalate", n): one for n, one in enumerate(settings.escalate.to)}
    for (key, number), channel in named.items():
        problem = missing_channel(channel, settings, webhooks)
        if problem is not None:
            raise document.error(("alerts", key), problem, ("alerts", key, number))
    return settings


def missing_channel(
    channel: str, settings: AlertSettings, webhooks: Collection[str] | None
) -> str | None:
    """Return what is wrong with a channel that does not exist; None: it exists, or may exist."""
    kind, _, name = channel.partition(":")
    if kind != "webhook":
        is_known = channel in settings.own_channels
        return None if is_known else f"there is no channel {channel}; add {name} to alerts.{kind}"
    if webhooks is None or name in webhooks:
        return None
    return f"there is no webhook {name}; add it with `longline webhooks add {name} URL`"


def check_alert_settings(document: Document, *, with_secrets: bool = True) -> None:
    """Check what a settings file says about alerts, and that the secrets of channels exist.

    Raises:
        BadFile: it is invalid.
        UnknownSecret: a secret is missing.
    """
    settings = alert_settings_in(document)
    for secret in settings.secrets() if with_secrets else ():
        secret.check()


def read_alert_settings(webhooks: Collection[str] | None = None) -> AlertSettings:
    """Return what the settings file says about alerts; the defaults without one.

    The webhooks of channels must be among `webhooks`, unless that is None.

    Raises:
        BadFile: it is invalid.
    """
    path = settings_file()
    return AlertSettings() if path is None else alert_settings_in(read_document(path), webhooks)


def check_silence(rule: str | None, subject: str | None) -> None:
    """Refuse a silence that no alert can have.

    Raises:
        BadOption: there is no such rule or subject, or neither is given.
    """
    if not rule and not subject:
        raise BadOption("--rule", "give a rule, a subject or both")
    names = [one.name for one in make_rules(read_alert_settings().rules)]
    if rule and not fnmatch.filter(names, rule):
        raise BadOption(
            "--rule", f"there is no rule {rule!r:.120}; `longline alerts rules` lists them"
        )
    try:
        check_subject(subject or "*")
    except ValueError as error:
        raise BadOption("--subject", str(error)) from None


class SettingsPart(Generic[T]):
    """A key of the settings file, read again when the file has changed.

    An invalid file is logged once, and what it said before stays in use until it is valid.

    Args:
        name: what the key is about.
        parse: returns the value of a file and of the names of all webhooks; raises BadFile.
        default: the value without a file.
    """

    def __init__(
        self, name: str, parse: Callable[[Document, Collection[str] | None], T], default: T
    ) -> None:
        self._name = name
        self._parse = parse
        self._value = self._default = default
        self._stamp: tuple[str, int, int] | None = None
        self._problem = ""
        self._has_value = False
        self._webhooks: Collection[str] | None = None

    async def current(self, store: Store) -> T:
        """Return the value as it is now; from now on, the webhooks that it names must exist."""
        webhooks = {one.name for one in await store.webhooks.list()}
        return await asyncio.to_thread(self.read, webhooks)

    def read(self, webhooks: Collection[str] | None = None) -> T:
        """Return the value as it is now; `webhooks` are all names, None: those of earlier calls."""
        self._webhooks = self._webhooks if webhooks is None else webhooks
        path = settings_file()
        stamp = None if path is None else _stamp_of(path)
        # A webhook that was missing may have been added since.
        if stamp == self._stamp and not self._problem:
            return self._value
        self._stamp = stamp
        try:
            self._value = self._parsed(path, self._webhooks)
        except BadFile as error:
            if str(error) != self._problem:
                _LOG.warning("the settings of %s are invalid: %s", self._name, error)
            self._problem = str(error)
            if not self._has_value:  # a missing webhook must not keep the other channels waiting
                with contextlib.suppress(BadFile):
                    self._value = self._parsed(path, None)
        else:
            self._problem = ""
        self._has_value = True
        return self._value

    def _parsed(self, path: Path | None, webhooks: Collection[str] | None) -> T:
        if path is None:
            return self._default
        document = read_document(path)
        check(document, file_model(Settings))  # applied completely or not at all
        return self._parse(document, webhooks)


class AlertFile(SettingsPart[AlertSettings]):
    """The settings of alerts, read again when their file has changed."""

    def __init__(self) -> None:
        super().__init__("alerts", alert_settings_in, AlertSettings())


def _stamp_of(path: Path) -> tuple[str, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return str(path), found.st_mtime_ns, found.st_size
