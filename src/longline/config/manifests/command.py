"""A manifest for a command that prints records, one JSON object a line."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from longline.config.manifests.base import Manifest, names_in
from longline.config.manifests.json_paths import JsonPath
from longline.config.written import wrong


class CommandManifest(Manifest):
    """Any program as a source: it is run once, and every line that it prints is a record."""

    manifest: Literal["command"] = "command"
    command: tuple[str, ...] = Field(min_length=1)
    """The program and its arguments, each for itself; `{name}` stands for a parameter."""
    key: JsonPath | None = None
    """What makes a record the same one next time; else its `id`, `key` or `url`."""
    fields: dict[str, JsonPath] = Field(default_factory=dict)
    """What a record keeps, and where it stands in a line; without any, all of it."""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds for the whole command."""
    silence: float | None = Field(default=None, gt=0)
    """Seconds without a line after which it is taken for dead."""
    folder: str | None = None
    """Where it is run, from the folder of the manifest; where longline was started, unless said."""
    may_be_empty: bool = False
    """Whether printing no line at all is fine; otherwise it is taken for a failure."""

    @field_validator("command", mode="before")
    @classmethod
    def _as_list(cls, command: object) -> object:
        if isinstance(command, str):
            raise wrong("write the command as a list, a word each: [python, scraper.py, --all]")
        return command

    @model_validator(mode="after")
    def _know_names(self) -> Self:
        for word in self.command:
            for name in names_in(word):
                if name not in self.parameters:
                    known = ", ".join(self.parameters) or "none"
                    raise wrong(
                        f"the command speaks of {{{name}}}, which is no parameter; there is {known}"
                        " (a plain brace is written twice)"
                    )
        return self
