"""Errors of the home, its files and secrets."""

from __future__ import annotations

import shlex

from longline.core.errors import ConfigError


class HomeUnwritable(ConfigError):
    path: str
    problem: str
    message = "the data folder {path} cannot be written ({problem})"
    hint = "Make it writable, or set LONGLINE_HOME or --home to another folder."


class UnknownSecret(ConfigError):
    """A reference to a secret (`env:NAME`, `file:PATH`) cannot be resolved."""

    reference: str
    problem: str
    message = "the secret {reference} cannot be used: {problem}"


class SourceIsAddress(ConfigError):
    address: str
    message = "{address} is the address of a site, not a source"
    hint = "Propose a manifest for it with `longline sources new {quoted}`, then run that file."

    @property
    def quoted(self) -> str:
        return shlex.quote(self.address)
