"""Secrets by reference: settings, jobs and files say where a secret is, never the secret."""

from __future__ import annotations

import importlib
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    GetCoreSchemaHandler,
    PlainSerializer,
    PlainValidator,
    SecretStr,
)
from pydantic_core import CoreSchema, core_schema
from yarl import URL

from longline.config.validation import invalid
from longline.core.errors import MissingExtra, UnknownSecret
from longline.core.redaction import KNOWN_SECRETS

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_BYTES = 65536  # a larger file is not a secret
_KINDS = ("env", "file", "keyring")
# These messages never repeat the input: it may be the secret itself.
_NOT_A_REFERENCE = (
    "write a reference instead of the secret: env:NAME for an environment variable, "
    "file:/path for a file with the secret, or keyring:service/name"
)
_NOT_TEXT = "must be text, or a reference such as env:NAME or file:/path"


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret is: a variable, a file, or a keyring. It is read when needed.

    Users write `env:NAME`, `file:/path` or `keyring:service/name`, as text or as `{env: NAME}`. A
    relative path is made absolute, so that a job that is resumed from another directory finds the
    same file.
    """

    kind: Literal["env", "file", "keyring"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    def read(self) -> SecretStr:
        """Return the secret; a line end at the end of a file is removed.

        Raises:
            UnknownSecret: it is missing, empty, or not text.
            MissingExtra: it is in a keyring, and the library is not installed.
        """
        if self.kind == "env":
            secret = self._read_variable()
        else:
            secret = self._read_file() if self.kind == "file" else self._read_keyring()
        KNOWN_SECRETS.add(secret)
        return SecretStr(secret)

    def check(self) -> None:
        """Check that the secret can be read.

        Raises:
            UnknownSecret: it cannot.
        """
        self.read()

    @classmethod
    def parse(cls, value: object) -> SecretRef:
        """Parse a reference.

        Raises:
            ValueError: it is not a reference; the message does not repeat it.
        """
        if isinstance(value, SecretRef):
            return value
        kind: object = None
        name: object = None
        if isinstance(value, str):
            kind, _, name = value.partition(":")
        elif isinstance(value, Mapping) and len(value) == 1:
            kind, name = next(iter(value.items()))
        text = str(name).strip() if isinstance(name, str | Path) else ""
        match str(kind).strip():
            case "env" if _VARIABLE.fullmatch(text):
                return cls("env", text)
            case "env":
                problem = (
                    "env: needs the name of an environment variable: letters, digits, underscores"
                )
            case "file" if text:
                return cls("file", str(Path(text).expanduser().absolute()))
            case "file":
                problem = "file: needs the path of a file with the secret"
            case "keyring" if all(text.rpartition("/")):
                return cls("keyring", text)
            case "keyring":
                problem = "keyring: needs a service and a name, for example keyring:shop/api"
            case _:
                problem = _NOT_A_REFERENCE
        raise ValueError(problem)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _validate,
            serialization=core_schema.plain_serializer_function_ser_schema(str),
            json_schema_input_schema=core_schema.str_schema(),
        )

    def _read_variable(self) -> str:
        text = os.environ.get(self.name, "")
        if not text:
            raise UnknownSecret(str(self), f"set the environment variable {self.name}")
        try:
            text.encode()
        except UnicodeEncodeError:  # bytes that are not UTF-8 are surrogates in the environment
            raise UnknownSecret(str(self), "its value is not UTF-8 text") from None
        return text

    def _read_file(self) -> str:
        path = Path(self.name)
        try:
            # Reading a pipe or a device may block. Permissions are not checked: containers mount
            # secrets readable for all.
            if not path.is_file():
                raise UnknownSecret(str(self), "the file does not exist; create it with the secret")
            with path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise UnknownSecret(str(self), f"not readable ({error.strerror or error})") from error
        if len(content) > _MAX_BYTES:
            raise UnknownSecret(str(self), f"the file is larger than {_MAX_BYTES} bytes")
        try:
            text = content.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            # Not chained: that error quotes the bytes.
            raise UnknownSecret(str(self), "the file is not UTF-8 text") from None
        if not text:
            raise UnknownSecret(str(self), "the file is empty; write the secret into it")
        return text

    def _read_keyring(self) -> str:
        try:
            keyring = importlib.import_module("keyring")
        except ImportError as error:
            raise MissingExtra("keyring", f"the secret {self}") from error
        service, _, entry = self.name.rpartition("/")
        try:
            secret = keyring.get_password(service, entry)
        except Exception as error:
            # Backends raise errors of any type; their names are safe to show.
            problem = f"the keyring cannot be read ({type(error).__name__})"
            raise UnknownSecret(str(self), problem) from error
        if not secret:
            problem = f"it is not in the keyring; add it with: keyring set {service} {entry}"
            raise UnknownSecret(str(self), problem)
        return str(secret)


def reveal(value: SecretRef | str) -> str:
    """Return a text, or the secret of a reference; never print the result.

    Raises:
        UnknownSecret: a reference cannot be read.
    """
    return value if isinstance(value, str) else value.read().get_secret_value()


def is_reference(value: object) -> bool:
    """Return whether a value is meant as a reference, valid or not."""
    if isinstance(value, str):
        return value.strip().partition(":")[0] in _KINDS
    return isinstance(value, SecretRef | Mapping)


def text_or_reference(value: object) -> SecretRef | str:
    """Validate a value that is a text or a reference.

    Raises:
        PydanticCustomError: it is neither.
    """
    if is_reference(value):
        return _validate(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise invalid(_NOT_TEXT)
    return str(value)


def _validate(value: object) -> SecretRef:
    try:
        return SecretRef.parse(value)
    except (ValueError, RuntimeError) as error:  # RuntimeError: there is no home for the ~
        raise invalid(str(error)) from None


TextOrRef = Annotated[
    SecretRef | str,
    PlainValidator(text_or_reference, json_schema_input_type=str),
    PlainSerializer(str, return_type=str),
]
"""A plain text, or a reference to a secret."""


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(:\d+)?")  # a name in any script, or an IP address

# URLs are parsed by the library that the transport uses, so that both mean the same host.


@dataclass(frozen=True, slots=True)
class Reach:
    """The hosts that may receive a secret.

    `example.com` is that host on the default port and `example.com:8443` on another;
    `*.example.com` is every subdomain, but not the domain itself.
    """

    hosts: tuple[str, ...]
    allow_http: bool = False

    def covers(self, url: str) -> bool:
        """Return whether a URL is on one of the hosts."""
        parsed = _url_or_none(url)
        if parsed is None or not parsed.raw_host or parsed.raw_host.endswith("."):
            return False
        names = (host_of(parsed), f"{parsed.host_subcomponent}:{parsed.port}")
        exact = {pattern for pattern in self.hosts if not pattern.startswith("*.")}
        below = tuple(pattern[1:] for pattern in self.hosts if pattern.startswith("*."))
        return any(name in exact or name.endswith(below) for name in names)

    def problem(self, url: str) -> str | None:
        """Return why a secret may not be sent to a URL; None when it may."""
        parsed = _url_or_none(url)
        if parsed is None or not self.covers(url):
            host = (parsed and parsed.host) or "that URL"
            allowed = ", ".join(self.hosts) or "none"
            return f"{host} is not among the hosts that may receive the secret: {allowed}"
        if self.allow_http or is_confidential(parsed):
            return None
        return (
            f"the secret would be sent to {parsed.host} unencrypted; use https, or set "
            "allow_http: true"
        )


def is_confidential(url: URL) -> bool:
    """Return whether requests to a URL are encrypted or stay on this machine."""
    return url.scheme == "https" or is_loopback(url.host or "")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(url: URL) -> str:
    """Return the host of a URL, with its port if that is not the default."""
    return url.host_port_subcomponent or ""


def host_pattern(value: object) -> str:
    """Return a host pattern in normal form.

    Raises:
        PydanticCustomError: it is not a host pattern.
    """
    text = value.strip().lower() if isinstance(value, str) else ""
    stem = text.removeprefix("*.")
    is_below = stem != text
    url = _url_or_none(f"https://{stem}")
    if url is None or not _HOST.fullmatch(stem) or not url.raw_host:
        raise invalid("a host is written as api.example.com, api.example.com:8443 or *.example.com")
    if is_below and "." not in stem:
        raise invalid(
            f"{text} would send the secret to other hosts; write the hosts that may receive it"
        )
    return ("*." if is_below else "") + host_of(url)


def _url_or_none(url: str) -> URL | None:
    try:
        return URL(url)
    except ValueError:
        return None  # the transport reports the problem


def _host_patterns(value: Any) -> tuple[str, ...]:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, Iterable):
        raise invalid("hosts is a list, for example [api.example.com]")
    return tuple(dict.fromkeys(host_pattern(one) for one in several))


Hosts = Annotated[tuple[str, ...], BeforeValidator(_host_patterns)]
"""A list of host patterns, or one of them."""
