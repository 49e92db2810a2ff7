"""The language a text is written in, told by a library on this machine, or not told at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from longline.core.errors import BadOption, MissingExtra
from longline.pipeline.enrichers.base import Addition, empty_addition
from longline.pipeline.manifest import SURE, Language
from longline.pipeline.stages import checked_step

_LIBRARY = "py3langid"
# Addresses are written in no language, and look English to whoever counts letters.
# A mail address begins with its word: looked for in its middle, a long word would take forever.
_ADDRESSES = re.compile(r"(?:https?://|www\.)\S+|(?<!\S)\S[^\s@]*+@\S+")
_LONGEST = 2_000  # characters; more of them make no answer surer
_NO_LANGUAGE = "zxx"
_TWO_LETTERS = 2


class LanguageEnricher:
    """Names the language of most of a text; of what is short or in doubt it says nothing."""

    name = "language"

    def __init__(self, spec: Language) -> None:
        """Load the library.

        Raises:
            ConfigError: it is not installed, or does not know a language that is named.
        """
        self._spec = spec
        self._identifier = _identifier()
        if strangers := sorted(set(spec.among) - set(self._identifier.labels)):
            raise BadOption("among", f"{_LIBRARY} knows no language {strangers[0]!r}")
        self.version = f"{_LIBRARY} {version(_LIBRARY)}"
        self._origin = f"language, machine-made of {', '.join(spec.fields)} by {self.version}"

    @classmethod
    def with_options(cls, **options: Any) -> LanguageEnricher:
        """Make one from what stands under `language` in a manifest.

        Raises:
            ConfigError: something of it does not fit, or the library is not installed.
        """
        return cls(checked_step(Language, **options))

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        spec = self._spec
        text = self._text(data)
        letters = sum(map(str.isalpha, text))
        if letters < spec.letters:
            why = f"too little text: {letters} of at least {spec.letters} letters"
            return empty_addition(spec.into, why, self._origin)
        code, doubt = self._judged(text)
        if doubt:
            return empty_addition(spec.into, doubt, self._origin)
        return Addition({spec.into: code}, (), self._origin)

    def _text(self, data: Mapping[str, Any]) -> str:
        texts = [data.get(field) for field in self._spec.fields]
        whole = "\n".join(one for one in texts if isinstance(one, str))
        return _ADDRESSES.sub(" ", whole)[:_LONGEST]

    def _judged(self, text: str) -> tuple[str, str | None]:
        """Return the likeliest language, and why it is not to be believed."""
        likely: dict[str, float] = dict(self._identifier.rank(text))
        code, share = next(iter(likely.items()))
        among, sureness = self._spec.among, self._spec.sureness
        is_other = bool(among) and code not in among and share >= SURE
        if among and not is_other:
            code, share = _best_among(among, likely)
        if share < sureness and not is_other:
            sure = f"{share:.2f} sure, and {sureness:g} is needed"
            return code, f"no language is clear: {code} is likeliest, {sure}"
        return code, _oddity(code, among)


def _oddity(code: str, among: tuple[str, ...]) -> str | None:
    """Return why a language cannot be the answer, however sure it is."""
    if code == _NO_LANGUAGE:
        return "it looks like no language at all"
    if len(code) != _TWO_LETTERS:
        return f"it looks like {code}, which has no code of two letters"
    if among and code not in among:
        return f"it looks like {code}, which is not among {', '.join(among)}"
    return None


def _best_among(among: tuple[str, ...], likely: Mapping[str, float]) -> tuple[str, float]:
    """Return the likeliest of some languages, if it must be one of them."""
    shares = {code: likely.get(code, 0.0) for code in among}
    code = max(shares, key=shares.__getitem__)
    return code, shares[code] / (sum(shares.values()) or 1.0)


def _identifier() -> Any:
    try:
        from py3langid import langid  # type: ignore[import-untyped]  # noqa: PLC0415  # ships no types; an extra
    except ImportError as error:
        raise MissingExtra("language", "telling the language of a text") from error
    return _loaded(langid.LanguageIdentifier, langid.MODEL_FILE)


@lru_cache(maxsize=1)
def _loaded(kind: Any, file: str) -> Any:
    """Return the one model of this process: it takes a second to load, and never changes."""
    return kind.from_model_file(file, norm_probs=True)
