"""A command that prints JSON Lines as a source: every line becomes a record as it comes."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, ClassVar

import orjson

from longline.config.manifests.api_paths import find
from longline.config.manifests.command import CommandManifest
from longline.config.manifests.templates import fill
from longline.errors import BadSource
from longline.fetching.json_text import read_json
from longline.model import Cursor, Item
from longline.sources.adapters.emptiness import Found, not_empty
from longline.sources.adapters.manifested import attributes_of
from longline.sources.adapters.processes import LONGEST_LINE, Overlong, lines_of, problem_of
from longline.sources.adapters.records import Keying, RecordSource
from longline.sources.base import Options, Source, layer
from longline.sources.visit import Visit


def source_of_command(argv: Sequence[str], *, name: str, **said: Any) -> type[Source]:
    """Make a source of a command; `said` are fields of a command's manifest (key, timeout, …).

    Raises:
        ValidationError: something does not fit.
    """
    return command_source(CommandManifest(name=name, command=tuple(argv), **said))


def command_source(manifest: CommandManifest) -> type[Source]:
    """Make a source of the manifest of a command."""
    values = {
        **attributes_of(manifest),
        "__doc__": manifest.about or f"What `{shlex.join(manifest.command)}` prints.",
        "kind": "command",
        "manifest": manifest,
    }
    return type(manifest.name, (_CommandSource,), values)


class _CommandSource(RecordSource):
    """Runs the command once. After a crash it is run anew; what is there is not queued again."""

    manifest: ClassVar[CommandManifest]

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        said = self.manifest
        self._argv = [fill(word, self.options.model_dump()) for word in said.command]
        # Now, before there is a job: nothing that is tried again later makes up for it.
        if problem := problem_of(self._argv, said.folder):
            raise BadSource(said.name, f"`{shlex.join(self._argv)}` cannot be started: {problem}")

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield an item for each line; one that is no record is going to be quarantined.

        Raises:
            DiscoveryFailed: there was none, and the manifest does not say that this is fine.
        """
        stream = self._stream(visit)
        if not self.manifest.may_be_empty:
            stream = not_empty(stream, self.name, "the command printed nothing; look at it")
        async with aclosing(stream) as found:
            async for one in found:
                yield one

    async def _stream(self, visit: Visit) -> Found:
        said = self.manifest
        path = said.key
        key = None if path is None else partial(find, path)
        keying = Keying(f"command://{self.name}", key, visit)
        running = lines_of(
            self._argv, timeout=said.timeout, silence=said.silence, folder=said.folder
        )
        async with aclosing(running) as lines:
            async for line in lines:
                if isinstance(line, Overlong):
                    text = line.start.decode(errors="replace")
                    yield keying.unusable(text, f"the line has more than {LONGEST_LINE} bytes")
                elif line.strip():
                    yield _item(keying, line)

    @layer()
    async def record(self, visit: Visit) -> Mapping[str, Any]:
        """Return the fields of a line that the manifest names; all, when it names none."""
        data = await super().record(visit)
        if not self.manifest.fields:
            return data
        found = {name: find(path, data) for name, path in self.manifest.fields.items()}
        for name in (name for name, value in found.items() if value is None):
            visit.note(name, f"the line has nothing at {self.manifest.fields[name]}")
        return found


def _item(keying: Keying, line: bytes) -> Item:
    try:
        return keying.item(read_json(line))
    except orjson.JSONDecodeError as error:
        text = line.decode(errors="replace")
        return keying.unusable(text, f"the line is not JSON ({error})")
