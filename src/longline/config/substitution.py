"""`${NAME}` in what a user writes stands for an environment variable."""

from __future__ import annotations

import re
from collections.abc import Mapping

from longline.config.secrets import is_reference

_PLACE = re.compile(r"\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SECRET = re.compile(r"(PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|PRIVATE_KEY)$", re.IGNORECASE)


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """Return the text with the value of each `${NAME}`; `${NAME:-default}` may be absent or empty.

    `$${NAME}` is `${NAME}` as it is written. A reference to a secret is left alone.

    Raises:
        ValueError: a variable is not set, or looks like a secret; the sentence says what to do.
    """
    if "${" not in text or is_reference(text):
        return text
    return _PLACE.sub(lambda found: _replaced(found, environment), text)


def _replaced(found: re.Match[str], environment: Mapping[str, str]) -> str:
    is_escaped, name, default = found[1], found[2], found[3]
    if is_escaped:
        return found[0][1:]
    if _SECRET.search(name):  # what is filled in here is kept in the job and shown to people
        problem = f"{name} looks like a secret; write env:{name} where auth or cookies want one"
        raise ValueError(problem)
    value = environment.get(name, "")
    if value or default is not None:
        return value or default
    problem = f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
    raise ValueError(problem)
