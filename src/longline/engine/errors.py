"""Errors of running a source."""

from __future__ import annotations

from longline.core.errors import ConfigError, LayerFailed, LonglineError


class UnknownCheckpoint(ConfigError):
    name: str
    message = "there is no checkpoint {name!r} in this home"
    hint = "`longline checkpoints` lists the checkpoints."


class NoFields(LayerFailed):
    """The code of a layer did not return fields by name; `problem` is the type it returned."""

    message = "layer {layer} returned {returned}, not fields by name"

    @property
    def returned(self) -> str:
        if self.problem == "NoneType":
            return "nothing"
        return f"{'an' if self.problem[0] in 'aeiou' else 'a'} {self.problem}"


class StrayCancellation(LonglineError):
    """The code of a source raised a cancellation that nothing asked for."""

    message = "something that the source awaited was cancelled (asyncio.CancelledError)"


class TookTooLong(LonglineError):
    seconds: float
    message = "it took longer than {seconds:g} s"
