"""Errors of the pipeline."""

from __future__ import annotations

from longline.core.errors import LayerFailed, LonglineError, UnexpectedShape

_MAX_SHOWN = 3  # problems of one record in a message; all of them are stored with it


class ValidationFailed(UnexpectedShape):
    """The data of a record breaks rules of its source; `problems` lists each with its place."""

    problems: tuple[str, ...]

    def __init__(self, where: str, problems: tuple[str, ...]) -> None:
        rest = len(problems) - _MAX_SHOWN
        more = f" and {rest} more" if rest > 0 else ""
        shown = "; ".join(problems[:_MAX_SHOWN]) + more
        LonglineError.__init__(self, where, shown, problems)
        self.args = (where, problems)  # pickle calls this __init__ with them


class StageFailed(LayerFailed):
    message = "stage {layer} raised {problem}"
