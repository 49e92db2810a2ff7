"""How a source logs in with a form: what a user writes under `auth` with `kind: login`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator
from selectolax.lexbor import LexborHTMLParser, SelectolaxError

from longline.config.proof import Proof, check_address, host_in
from longline.config.secrets import SecretRef, TextOrRef
from longline.config.written import Written, wrong

_SECRET_NAME = re.compile(r"pass|pwd|secret", re.IGNORECASE)


class _OneOf(Written):
    """A sign to look for: exactly one of the fields is said."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        names = list(type(self).model_fields)
        if sum(getattr(self, name) is not None for name in names) != 1:
            raise wrong(f"say exactly one of {', '.join(names)}")
        return self

    @field_validator("selector", check_fields=False)
    @classmethod
    def _a_selector(cls, selector: str | None) -> str | None:
        return selector if selector is None else _checked(selector)


class Success(_OneOf):
    """How to know that a login worked."""

    status: int | None = Field(default=None, ge=100, le=599)
    """The status that the form's own answer has, before any redirect is followed."""
    selector: str | None = None
    """Something that the page after the login shows only to those who are logged in."""
    cookie: str | None = Field(default=None, min_length=1)
    """The cookie that is set when the form was accepted."""


class LoggedOut(_OneOf):
    """How to know later that the session has ended."""

    status: int | None = Field(default=None, ge=100, le=599)
    selector: str | None = None
    """Something that only those see who are not logged in."""
    redirect: str | None = Field(default=None, min_length=1)
    """The address, or the path, that those are sent to."""


class LoginAuth(Proof):
    """A login form: read, filled in, sent; the cookies that come back are the proof.

    Without `hosts`, the host of the form is the only one that is logged in to.
    """

    kind: Literal["login"] = "login"
    url: str
    """The page with the form."""
    fields: dict[str, TextOrRef] = Field(min_length=1)
    """What is filled in, by the names of the form's fields; hidden ones are sent along."""
    form: str | bool = True
    """A CSS selector of the form; true: the one with a password; false: no page is read."""
    success: Success | None = None
    """Default: no error, a cookie, and no password field in the page that comes back."""
    logged_out: LoggedOut | None = None
    """Default: a 401, or a redirect to the page with the form."""

    @model_validator(mode="before")
    @classmethod
    def _own_host(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and not values.get("hosts"):
            host = host_in(values.get("url"))
            return {**values, "hosts": [host]} if host else values
        return values

    @field_validator("fields")
    @classmethod
    def _secrets_by_reference(
        cls, fields: dict[str, SecretRef | str]
    ) -> dict[str, SecretRef | str]:
        bare = [n for n, v in fields.items() if _SECRET_NAME.search(n) and isinstance(v, str)]
        if bare or not any(isinstance(value, SecretRef) for value in fields.values()):
            what = bare[0] if bare else "the password"
            raise wrong(f"{what} must be a reference: env:NAME or file:/path")
        return fields

    @field_validator("form")
    @classmethod
    def _a_form(cls, form: str | bool) -> str | bool:  # noqa: FBT001  # pydantic's signature
        return _checked(form) if isinstance(form, str) else form

    @model_validator(mode="after")
    def _sound_address(self) -> Self:
        check_address("url", self.url, allow_http=self.allow_http)
        if problem := self.reach.problem(self.url):
            raise wrong(f"url: {problem}")
        return self


def _checked(selector: str) -> str:
    try:
        LexborHTMLParser("").css(selector)
    except SelectolaxError:
        raise wrong(f"{selector!r} is not a CSS selector") from None
    return selector
