"""The key `proxies` of the settings file: sources of candidates, their check, and the refresh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from longline.config.documents import Document, read_document
from longline.config.secrets import SecretRef
from longline.config.settings import settings_file
from longline.config.times import Seconds
from longline.config.validation import StrictModel, invalid, select_problem
from longline.http.proxies.candidates import CandidateSource
from longline.http.proxies.pool import Anonymity


def _check_url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise invalid("write a URL that begins with http:// or https://")
    return text


Url = Annotated[str, AfterValidator(_check_url)]


class CheckOptions(StrictModel):
    """How a proxy is checked.

    `judge` is the URL of a judge endpoint; without it, one is opened on this machine for the time
    of the check, which only proxies on this machine can reach. `page` is a page that must respond
    with status 200 and contain `word`. Proxies below `anonymity` are refused, and with
    `own_network: drop` those whose exit is in the network of this machine.
    """

    judge: Url | None = None
    page: Url | None = None
    word: str | None = Field(default=None, min_length=1, max_length=1000)
    timeout: Seconds = Field(default=15.0, gt=0, le=300)
    concurrency: int = Field(default=50, ge=1, le=500)
    deadline: Seconds = Field(default=600.0, gt=0)
    chunk: int = Field(default=100, ge=1, le=1000)
    anonymity: Anonymity = "transparent"
    own_network: Literal["allow", "drop"] = "allow"

    @model_validator(mode="after")
    def _check_word(self) -> Self:
        if self.word is not None and self.page is None:
            raise invalid("word is searched on a page; add page")
        if self.lacks_judge:
            raise invalid("only a judge sees anonymity and own_network; add judge, or remove page")
        return self

    @property
    def lacks_judge(self) -> bool:
        """Whether something is wanted that only a judge sees, and a page alone is requested."""
        is_wanted = self.anonymity != "transparent" or self.own_network == "drop"
        return is_wanted and self.page is not None and self.judge is None


class TierSpec(StrictModel):
    """A price of proxies: the cost of a request, and the most that a day (UTC) may cost."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    cost: float = Field(default=0.0, ge=0)
    budget: float | None = Field(default=None, ge=0)


def _check_names(tiers: tuple[TierSpec, ...]) -> tuple[TierSpec, ...]:
    names = [tier.name for tier in tiers]
    if len({*names}) < len(names):
        raise invalid("several tiers have the same name")
    return tiers


class ProxySettings(StrictModel):
    """What the settings file says about the pool of proxies.

    When fewer proxies than `minimum` are usable, the pool is refreshed and an alert fires; with no
    sources of candidates, the alert only fires if `minimum` is written. `refresh` is the longest
    time between two refreshes, null only below the minimum.
    """

    candidates: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")], CandidateSource
    ] = Field(default_factory=dict)
    minimum: int = Field(default=10, ge=0, le=1_000_000)
    refresh: Seconds | None = Field(default=6 * 3600.0, ge=60)
    retry: Seconds = Field(default=600.0, ge=10)
    """Least time between two refreshes that did not reach the minimum."""
    forget_after: int = Field(default=5, ge=1)
    """Failed checks in a row after which a proxy of a list is removed."""
    check: CheckOptions = Field(default_factory=CheckOptions)
    tiers: Annotated[tuple[TierSpec, ...], AfterValidator(_check_names)] = ()
    """Tiers of proxies, in the order in which requests use them."""

    @property
    def has_minimum(self) -> bool:
        """Whether a minimum applies: it is written, or there are sources of candidates."""
        return bool(self.candidates) or "minimum" in self.model_fields_set


def proxy_settings_in(document: Document) -> ProxySettings:
    """Return what a settings file says about proxies; paths are relative to its folder.

    Raises:
        BadFile: it is invalid; of several problems, the first in the file is reported.
    """
    node = document.node(("proxies",))
    if node is None or node.content is None:
        return ProxySettings()
    try:
        found = ProxySettings.model_validate(node.plain())
    except ValidationError as error:
        problem = select_problem(error, node)
        loc, near = ("proxies", *problem.loc), ("proxies", *problem.near)
        raise document.error(loc, problem.problem, near) from None
    folder = document.path.absolute().parent
    sources: Mapping[str, CandidateSource] = {
        name: one.relative_to(folder) for name, one in found.candidates.items()
    }
    return found.model_copy(update={"candidates": sources})


def read_proxy_settings() -> ProxySettings:
    """Return what the settings file says about proxies; the defaults without one.

    Raises:
        BadFile: it is invalid.
    """
    path = settings_file()
    return ProxySettings() if path is None else proxy_settings_in(read_document(path))


def check_proxy_settings(document: Document, *, with_secrets: bool = True) -> None:
    """Check what a settings file says about proxies, and that its secrets exist.

    Raises:
        BadFile: it is invalid.
        UnknownSecret: a secret is missing.
    """
    found = proxy_settings_in(document)
    for source in found.candidates.values() if with_secrets else ():
        if source.credentials is not None:
            source.credentials.check()
        for value in (source.url, *source.headers.values()):
            if isinstance(value, SecretRef):
                value.check()
