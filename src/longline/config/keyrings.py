"""Secrets in the keyring of the system, with the optional library `keyring`."""

from __future__ import annotations

import importlib

from longline.errors import MissingExtra, UnknownSecret


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
