"""Keys as every database can keep them: an index of PostgreSQL takes no more than 2,704 bytes."""

from __future__ import annotations

import hashlib

from longline.stores.texts import kept_text

_LONGEST = 2000  # bytes; the rest is for what else stands in the same index
_WIDEST = 4  # bytes of one sign
_BEGINNING = 1900  # bytes that stay of a longer one, so that people know it again


def kept_key(key: str) -> str:
    """Return a key as it is stored: one that is too long ends in a hash of the whole.

    The sign of code 0, which PostgreSQL cannot keep, becomes U+FFFD; half a surrogate pair, which
    no database can, its escape.
    """
    readable = kept_text(key.replace("\x00", "\ufffd") if "\x00" in key else key)
    if len(readable) * _WIDEST <= _LONGEST:
        return readable
    written = readable.encode()
    if len(written) <= _LONGEST:
        return readable
    beginning = written[:_BEGINNING].decode(errors="ignore")  # not half a sign
    return f"{beginning}~{hashlib.sha256(written).hexdigest()}"
