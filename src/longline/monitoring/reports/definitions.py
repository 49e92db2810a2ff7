"""The key `reports` of the settings file: which digests are made, when, and where they are sent."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from longline.config.documents import Document, read_document
from longline.config.settings import settings_file
from longline.config.times import ZoneName
from longline.config.validation import (
    StrictModel,
    invalid,
    one_or_several,
    select_problem,
)
from longline.core.errors import BadOption
from longline.http.proxies.configuration import proxy_settings_in
from longline.monitoring.alerts.configuration import (
    Channel,
    ChannelName,
    ClockTime,
    SettingsPart,
    alert_settings_in,
    missing_channel,
)
from longline.monitoring.reports.formats import format_of_file
from longline.scheduling.triggers import Cron, parse_calendar, parse_cron
from longline.storage.store import Store

_FILE = "file:"
_WEBHOOK = "webhook:"
_DATE = "{date}"
_DAYS = {"daily": 1, "weekly": 7}
_WEEKLY = "Mon"
_PLACEHOLDER = re.compile(r"\{[^}]*\}?|\}")


def _check_report_target(text: str) -> str:
    if not text.startswith(_FILE):
        return text
    name = text.removeprefix(_FILE)
    if _PLACEHOLDER.search(name.replace(_DATE, "")):
        raise invalid("a file name may have {date} and no other name in braces")
    try:
        format_of_file(name)
    except BadOption as error:
        raise invalid(error.problem) from None
    return text


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_FILE)


ReportTarget = Annotated[str, AfterValidator(_check_report_target)]


class ReportDefinition(StrictModel):
    """A digest that is made by schedule.

    `every` is daily, weekly (on Mondays), other days such as `Mon, Thu`, or a cron expression. `at`
    is the time of day. `days` is how many days it covers; default: 7 if weekly, else 1.
    """

    every: str = "daily"
    at: ClockTime | None = None
    timezone: ZoneName = "UTC"
    days: int | None = Field(default=None, ge=1, le=366)
    to: Annotated[tuple[ReportTarget, ...], BeforeValidator(one_or_several)] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        try:
            self.cron  # noqa: B018  # raises
        except ValueError as error:
            raise invalid(str(error)) from None
        return self

    @cached_property
    def cron(self) -> str:
        """The cron expression of its times.

        Raises:
            ValueError: they are invalid; says why.
        """
        if len(self.every.split()) == 5 or self.every.startswith("@"):  # noqa: PLR2004  # fields
            if self.at is not None:
                raise ValueError("a cron expression has its own time; remove `at`")
            return parse_cron(self.every)
        at = "07:00" if self.at is None else f"{self.at:%H:%M}"
        days = _WEEKLY if self.every == "weekly" else self.every
        try:
            return parse_calendar(f"{days} {at}")
        except ValueError:
            known = "daily, weekly, days such as 'Mon, Thu', or a cron expression"
            raise ValueError(f"`every` is {known}") from None

    @cached_property
    def zone(self) -> ZoneInfo:
        """The time zone of its times and of its periods."""
        return ZoneInfo(self.timezone)

    @property
    def trigger(self) -> Cron:
        """When it is due."""
        return Cron(self.cron, self.zone)

    @property
    def covered_days(self) -> int:
        """How many days it covers."""
        return self.days or _DAYS.get(self.every, 1)

    @property
    def times(self) -> str:
        """What changes when it is due at other times."""
        return f"{self.cron} {self.timezone}"

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that send it."""
        return tuple(one for one in self.to if not _is_file(one))

    def files(self, end: datetime) -> tuple[str, ...]:
        """Return the files that it is written to; `end` is the end of its period."""
        names = (one.removeprefix(_FILE) for one in self.to if _is_file(one))
        return tuple(name.replace(_DATE, f"{end:%Y-%m-%d}") for name in names)


_DEFINITIONS: TypeAdapter[dict[str, ReportDefinition]] = TypeAdapter(
    dict[ChannelName, ReportDefinition]
)
_CHANNEL: TypeAdapter[str] = TypeAdapter(Channel)


def report_definitions_in(
    document: Document, webhooks: Collection[str] | None = None
) -> Mapping[str, ReportDefinition]:
    """Return the reports of a settings file by name; files are relative to its folder.

    Args:
        document: the settings file.
        webhooks: the names of all webhooks; None if unknown: those of channels are not checked.

    Raises:
        BadFile: it is invalid; of several problems, the first in the file is reported.
    """
    node = document.node(("reports",))
    if node is None or node.content is None:
        return {}
    try:
        found = _DEFINITIONS.validate_python(node.plain())
    except ValidationError as error:
        problem = select_problem(error, node)
        loc, near = ("reports", *problem.loc), ("reports", *problem.near)
        raise document.error(loc, problem.problem, near) from None
    _check_channels(document, found, webhooks)
    folder = document.path.absolute().parent
    return {name: _with_folder(one, folder) for name, one in found.items()}


def _check_channels(
    document: Document, found: Mapping[str, ReportDefinition], webhooks: Collection[str] | None
) -> None:
    known = alert_settings_in(document)
    for name, one in found.items():
        for channel in one.channels:
            try:
                _CHANNEL.validate_python(channel)
            except ValidationError:
                problem = "write mail:NAME, webhook:NAME, apprise:NAME or file:PATH"
                raise document.error(("reports", name, "to"), problem) from None
            missing = missing_channel(channel, known, webhooks)
            if missing is not None:
                raise document.error(("reports", name, "to"), missing)


def _with_folder(one: ReportDefinition, folder: Path) -> ReportDefinition:
    to = tuple(
        f"{_FILE}{folder / Path(name.removeprefix(_FILE)).expanduser()}" if _is_file(name) else name
        for name in one.to
    )
    return one.model_copy(update={"to": to})


class ReportFile(SettingsPart[Mapping[str, ReportDefinition]]):
    """The definitions of reports, read again when their file has changed."""

    def __init__(self) -> None:
        super().__init__("reports", report_definitions_in, {})


async def check_settings_file(store: Store) -> None:
    """Check what the settings file says about alerts, reports and proxies.

    Raises:
        BadFile: it is invalid, or names a webhook that does not exist.
    """
    path = settings_file()
    if path is not None:
        document = read_document(path)
        webhooks = {one.name for one in await store.webhooks.list()}
        alert_settings_in(document, webhooks)
        report_definitions_in(document, webhooks)
        proxy_settings_in(document)


def webhooks_in(document: Document) -> set[str]:
    """Return the webhooks to which a valid settings file sends alerts or reports."""
    reports = report_definitions_in(document).values()
    channels = [*alert_settings_in(document).channels, *(to for one in reports for to in one.to)]
    return {one.removeprefix(_WEBHOOK) for one in channels if one.startswith(_WEBHOOK)}
