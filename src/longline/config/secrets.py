"""Secrets by reference: settings, jobs and files name where a secret is, never the secret."""

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

from longline.config.errors import UnknownSecret
from longline.config.strict_model import invalid
from longline.core.errors import MissingExtra

# ---------------- Secrets in the keyring of the system, with the optional library `keyring`


def read_entry(name: str) -> str:
    """Return the secret of `service/name`.

    Raises:
        MissingExtra: the library is not installed.
        UnknownSecret: there is no such entry, or no keyring that can be opened.
    """
    try:
        keyring = importlib.import_module("keyring")
    except ImportError as error:
        raise MissingExtra("keyring", f"the secret keyring:{name}") from error
    service, _, entry = name.rpartition("/")
    reference = f"keyring:{name}"
    try:
        secret = keyring.get_password(service, entry)
    except Exception as error:
        # A backend raises what it likes; its words say what is locked or absent, never a secret.
        problem = f"the keyring cannot be read ({type(error).__name__})"
        raise UnknownSecret(reference, problem) from error
    if not secret:
        problem = f"the keyring has none; add it with: keyring set {service} {entry}"
        raise UnknownSecret(reference, problem)
    return str(secret)


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LARGEST = 65536  # bytes; what is larger is not a secret but the wrong file
_KINDS = ("env", "file", "keyring")
# These sentences never repeat what was written: it may be the secret itself.
_NOT_A_REFERENCE = (
    "a secret is never written here: write env:NAME and set the environment variable NAME, "
    "or write file:/path and put the secret into that file, or keyring:service/name"
)
_NOT_A_VARIABLE = (
    "what follows env: is the name of an environment variable: letters, digits and underscores"
)
_NOT_A_PATH = "what follows file: is the path of a file that holds the secret"
_NOT_AN_ENTRY = "what follows keyring: is a service and a name, for example keyring:shop/api"
_NOT_TEXT = "must be text, or a reference such as env:NAME or file:/path"


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret is: a variable, a file, or a keyring. Reading it is put off until needed.

    Users write `env:NAME`, `file:/path` or `keyring:service/name`, as text or as `{env: NAME}`. A
    relative path is made absolute when it is written down, so that a job resumed from elsewhere
    finds the same file.
    """

    kind: Literal["env", "file", "keyring"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    def read(self) -> SecretStr:
        """Return the secret as it is now; a line end at the end of a file is not part of it.

        Raises:
            UnknownSecret: it is not there, empty, or not text.
            MissingExtra: it is in a keyring, and the library for that is not installed.
        """
        if self.kind == "keyring":
            return SecretStr(read_entry(self.name))
        return SecretStr(self._variable() if self.kind == "env" else self._content())

    def check(self) -> None:
        """See that the secret can be read.

        Raises:
            UnknownSecret: it cannot.
        """
        self.read()

    @classmethod
    def parse(cls, value: object) -> SecretRef:
        """Make a reference of what a user wrote.

        Raises:
            ValueError: it is none; the sentence does not repeat it.
        """
        if isinstance(value, SecretRef):
            return value
        if isinstance(value, str):
            kind, _, name = value.strip().partition(":")
        elif isinstance(value, Mapping) and len(value) == 1:
            kind, name = next(iter(value.items()))
        else:
            raise ValueError(_NOT_A_REFERENCE)
        if kind == "env":
            return cls("env", _variable_name(name))
        if kind == "file":
            return cls("file", _absolute(name))
        if kind == "keyring":
            return cls("keyring", _entry(name))
        raise ValueError(_NOT_A_REFERENCE)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _validated,
            serialization=core_schema.plain_serializer_function_ser_schema(str),
            json_schema_input_schema=core_schema.str_schema(),
        )

    def _variable(self) -> str:
        text = os.environ.get(self.name, "")
        if not text:
            raise UnknownSecret(str(self), f"set the environment variable {self.name}")
        if not _is_text(text):
            raise UnknownSecret(str(self), "its value is not UTF-8 text")
        return text

    def _content(self) -> str:
        path = Path(self.name)
        try:
            # A pipe or a device would make us wait; a file of others' rights is theirs to judge:
            # containers mount secrets readable for all.
            if not path.is_file():
                raise UnknownSecret(str(self), "there is no such file; put the secret there")
            with path.open("rb") as file:
                content = file.read(_LARGEST + 1)
        except OSError as error:
            raise UnknownSecret(str(self), f"not readable ({error.strerror or error})") from error
        if len(content) > _LARGEST:
            raise UnknownSecret(str(self), f"the file is larger than {_LARGEST} bytes")
        try:
            text = content.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            # Not chained: that error quotes the bytes.
            raise UnknownSecret(str(self), "the file is not UTF-8 text") from None
        if not text:
            raise UnknownSecret(str(self), "the file is empty; put the secret there")
        return text


def plain(value: SecretRef | str) -> str:
    """Return what a text or a reference stands for; keep it out of everything that is printed.

    Raises:
        UnknownSecret: a reference cannot be read.
    """
    return value if isinstance(value, str) else value.read().get_secret_value()


def is_reference(value: object) -> bool:
    """Return whether a user meant a reference, right or wrong."""
    if isinstance(value, str):
        return value.strip().partition(":")[0] in _KINDS
    return isinstance(value, SecretRef | Mapping)


def text_or_reference(value: object) -> SecretRef | str:
    """Check what a user wrote where either may stand.

    Raises:
        PydanticCustomError: it is neither.
    """
    if is_reference(value):
        return _validated(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise invalid(_NOT_TEXT)
    return str(value)


def _variable_name(name: object) -> str:
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name.strip()):
        raise ValueError(_NOT_A_VARIABLE)
    return name.strip()


def _absolute(path: object) -> str:
    if not isinstance(path, str | Path) or not str(path).strip():
        raise ValueError(_NOT_A_PATH)
    return str(Path(str(path).strip()).expanduser().absolute())


def _entry(name: object) -> str:
    service, _, entry = name.strip().rpartition("/") if isinstance(name, str) else ("", "", "")
    if not service or not entry:
        raise ValueError(_NOT_AN_ENTRY)
    return f"{service}/{entry}"


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8 come from the environment as surrogates
        return False
    return True


def _validated(value: object) -> SecretRef:
    try:
        return SecretRef.parse(value)
    except (ValueError, RuntimeError) as error:  # RuntimeError: there is no home for the ~
        raise invalid(str(error)) from None


TextOrRef = Annotated[
    SecretRef | str,
    PlainValidator(text_or_reference, json_schema_input_type=str),
    PlainSerializer(str, return_type=str),
]
"""What is secret for some and plain for others: text, or a reference."""


# ---------------- Where a secret may go: to the hosts that were named, encrypted

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(:\d+)?")  # a name in any script, or an address

# The addresses here are read by the library that the transport connects with, so that both
# always mean the same host.


@dataclass(frozen=True, slots=True)
class Reach:
    """The hosts that may see a secret.

    `example.com` is that host on the default port and `example.com:8443` on another;
    `*.example.com` is everything below it, and not itself.
    """

    hosts: tuple[str, ...]
    allow_http: bool = False

    def covers(self, url: str) -> bool:
        """Return whether this address is on one of the hosts."""
        parsed = _parsed(url)
        if parsed is None or not parsed.raw_host:
            return False
        names = {host_of(parsed), _written(parsed.raw_host, parsed.port)}
        return any(_fits(pattern, name) for pattern in self.hosts for name in names)

    def problem(self, url: str) -> str | None:
        """Return why a secret may not travel to this address; None when it may."""
        parsed = _parsed(url)
        if parsed is None or not self.covers(url):
            host = (parsed and parsed.host) or "that address"
            return f"{host} is not among the hosts that may see the secret: {_listed(self.hosts)}"
        if self.allow_http or is_private_way(parsed):
            return None
        return (
            f"the secret would travel to {parsed.host} unencrypted; use https, or allow it "
            "with allow_http: true"
        )


def is_private_way(url: URL) -> bool:
    """Return whether nobody between here and there can read along."""
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
    """Return the pattern that covers this address and no other host or port."""
    return _written(url.raw_host or "", _unusual_port(url))


def pattern_of(value: object) -> str:
    """Return a host pattern as a user wrote it, in the form that all are compared in.

    Raises:
        PydanticCustomError: it is none.
    """
    text = value.strip().lower() if isinstance(value, str) else ""
    stem = text.removeprefix("*.")
    is_below = stem != text
    url = _parsed(f"https://{stem}")
    if url is None or not _HOST.fullmatch(stem) or not url.raw_host:
        raise invalid("a host is written as api.example.com, api.example.com:8443 or *.example.com")
    if is_below and "." not in stem:
        raise invalid(f"{text} would send the secret to strangers; write the hosts that may see it")
    return ("*." if is_below else "") + host_of(url)


def _fits(pattern: str, name: str) -> bool:
    return name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern


def _written(host: str, port: int | None) -> str:
    bracketed = f"[{host}]" if ":" in host else host.lower()
    return bracketed if port is None else f"{bracketed}:{port}"


def _unusual_port(url: URL) -> int | None:
    usual = {"http": 80, "https": 443}.get(url.scheme)
    return None if url.port == usual else url.port


def _parsed(url: str) -> URL | None:
    try:
        return URL(url)
    except ValueError:
        return None  # the transport will say what is wrong with it


def _listed(hosts: Iterable[str]) -> str:
    return ", ".join(hosts) or "none was named"


def _patterns(value: Any) -> tuple[str, ...]:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, Iterable):
        raise invalid("hosts is a list, for example [api.example.com]")
    return tuple(dict.fromkeys(pattern_of(one) for one in several))


Hosts = Annotated[tuple[str, ...], BeforeValidator(_patterns)]
"""A list of host patterns as a user writes it; a single one needs no list."""
