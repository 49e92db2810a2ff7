"""Posted forms: read within a bound, and answered with a redirect that says what was done."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qs, quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse

from longline.core.errors import BadOption

MOST_FORM = 100_000  # bytes


async def read_form(request: Request, *, most: int = MOST_FORM) -> dict[str, str]:
    """Return the fields of a posted form; of a repeated one, the last.

    Raises:
        HTTPException: it has more than `most` bytes, or is not a form.
    """
    return {
        name: values[-1] for name, values in (await read_form_lists(request, most=most)).items()
    }


async def read_form_lists(request: Request, *, most: int = MOST_FORM) -> dict[str, list[str]]:
    """Return the fields of a posted form with all their values, with the errors of `read_form`."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise HTTPException(413, f"A form may have at most {most:,} bytes.")
    try:
        return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=1000)
    except ValueError as error:
        raise HTTPException(400, "This is not a form.") from error


@contextlib.contextmanager
def naming_fields(labels: Mapping[str, str]) -> Iterator[None]:
    """Name the field of the form in an error that names an option of a command.

    `labels` are those of fields, by the options; an option of a source has its own name.

    Raises:
        BadOption: that of the block, with the label.
    """
    try:
        yield
    except BadOption as error:
        if type(error) is not BadOption:  # it has a message of its own
            raise
        name = error.option.removeprefix("--").removeprefix("set ").removeprefix("param ")
        raise BadOption(labels.get(name, name), error.problem) from error


def redirect(path: str, done: str = "") -> RedirectResponse:
    """Return the redirect after an action to a path of this server, which shows what was done."""
    mark = "&" if "?" in path else "?"
    return RedirectResponse(f"{path}{mark}done={quote(done)}" if done else path, status_code=303)
