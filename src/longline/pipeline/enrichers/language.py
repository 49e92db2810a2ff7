"""Detect the language of a text with a local library."""

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
# Addresses have no language, and look English by their letters. The pattern of a mail address
# starts at a word boundary; inside a long word it would take quadratic time.
_ADDRESSES = re.compile(r"(?:https?://|www\.)\S+|(?<!\S)\S[^\s@]*+@\S+")
_MAX_LENGTH = 2_000  # characters; more do not improve the result
_NO_LANGUAGE = "zxx"
_TWO_LETTERS = 2


class LanguageEnricher:
    """Detects the main language of a text; a short or ambiguous one gives None."""

    name = "language"

    def __init__(self, spec: Language) -> None:
        """Load the library.

        Raises:
            ConfigError: it is not installed, or does not know a language in `among`.
        """
        self._spec = spec
        self._identifier = _identifier()
        if unknown := sorted(set(spec.among) - set(self._identifier.labels)):
            raise BadOption("among", f"{_LIBRARY} knows no language {unknown[0]!r}")
        self.version = f"{_LIBRARY} {version(_LIBRARY)}"
        self._origin = f"language, machine-made of {', '.join(spec.fields)} by {self.version}"

    @classmethod
    def with_options(cls, **options: Any) -> LanguageEnricher:
        """Make one from the options of `language` in a manifest.

        Raises:
            ConfigError: an option is invalid, or the library is not installed.
        """
        return cls(checked_step(Language, **options))

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        spec = self._spec
        text = self._text_of_fields(data)
        letters = sum(map(str.isalpha, text))
        if letters < spec.letters:
            why = f"too little text: {letters} of at least {spec.letters} letters"
            return empty_addition(spec.into, why, self._origin)
        code, doubt = self._detect(text)
        if doubt:
            return empty_addition(spec.into, doubt, self._origin)
        return Addition({spec.into: code}, (), self._origin)

    def _text_of_fields(self, data: Mapping[str, Any]) -> str:
        texts = [data.get(field) for field in self._spec.fields]
        whole = "\n".join(one for one in texts if isinstance(one, str))
        return _ADDRESSES.sub(" ", whole)[:_MAX_LENGTH]

    def _detect(self, text: str) -> tuple[str, str | None]:
        """Return the most likely language, and why it is not certain enough."""
        likely: dict[str, float] = dict(self._identifier.rank(text))
        code, share = next(iter(likely.items()))
        among, sureness = self._spec.among, self._spec.sureness
        is_other = bool(among) and code not in among and share >= SURE
        if among and not is_other:
            code, share = _best_among(among, likely)
        if share < sureness and not is_other:
            sure = f"{share:.2f} of at least {sureness:g}"
            return code, f"no language is certain: {code} is most likely, {sure}"
        return code, _objection(code, among)


def _objection(code: str, among: tuple[str, ...]) -> str | None:
    """Return why a language is not accepted, however certain it is."""
    if code == _NO_LANGUAGE:
        return "it is not in a language"
    if len(code) != _TWO_LETTERS:
        return f"it looks like {code}, which has no code of two letters"
    if among and code not in among:
        return f"it looks like {code}, which is not among {', '.join(among)}"
    return None


def _best_among(among: tuple[str, ...], likely: Mapping[str, float]) -> tuple[str, float]:
    """Return the most likely of some languages, and its share among them."""
    shares = {code: likely.get(code, 0.0) for code in among}
    code = max(shares, key=shares.__getitem__)
    return code, shares[code] / (sum(shares.values()) or 1.0)


def _identifier() -> Any:
    try:
        from py3langid import langid  # type: ignore[import-untyped]  # noqa: PLC0415  # ships no types; an extra
    except ImportError as error:
        raise MissingExtra("language", "language detection") from error
    return _load_model(langid.LanguageIdentifier, langid.MODEL_FILE)


@lru_cache(maxsize=1)
def _load_model(kind: Any, file: str) -> Any:
    """Load the model once per process; it takes a second."""
    return kind.from_model_file(file, norm_probs=True)
