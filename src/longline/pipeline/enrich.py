"""The stage that adds derived fields, and its enrichers by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longline.config.plugins import ENRICHERS, load_plugin
from longline.core.errors import BadOption
from longline.core.model import Note
from longline.pipeline.enrichers.base import Enricher
from longline.pipeline.enrichers.currency import CurrencyEnricher
from longline.pipeline.enrichers.geocode import GeocodeEnricher
from longline.pipeline.enrichers.language import LanguageEnricher
from longline.pipeline.manifest import Enrichers
from longline.pipeline.stages import Draft


def make_enricher(name: str, options: Any) -> Enricher:
    """Make a built-in enricher, or that of a plugin.

    Raises:
        ConfigError: it is unknown, does not accept the options, or lacks its library.
    """
    for built_in in (CurrencyEnricher, GeocodeEnricher, LanguageEnricher):
        if name == built_in.name:
            return built_in(options)
    make = load_plugin(ENRICHERS, name)
    if make is None:
        raise BadOption("enrich", f"there is no enricher {name!r}")
    enricher: Enricher = make(**options) if isinstance(options, Mapping) else make(options)
    if not callable(getattr(enricher, "enrich", None)):
        raise BadOption("enrich", f"the plugin {name!r} is not an enricher: it has no enrich()")
    return enricher


class Enrich:
    """Runs enrichers in order; collected values are never replaced."""

    name = "enrich"

    def __init__(self, *enrichers: Enricher) -> None:
        self._enrichers = enrichers

    @classmethod
    def from_written(cls, written: Enrichers) -> Enrich:
        """Make one from the `enrich` step of a manifest.

        Raises:
            ConfigError: an enricher is unknown, or does not accept its options.
        """
        return cls(*(make_enricher(name, options) for name, options in written.written().items()))

    def __call__(self, draft: Draft) -> Draft:
        for enricher in self._enrichers:
            draft = _enriched(draft, enricher)
        return draft


def _enriched(draft: Draft, enricher: Enricher) -> Draft:
    addition = enricher.enrich(draft.data)
    taken = [name for name in addition.fields if draft.data.get(name) is not None]
    fields = {name: value for name, value in addition.fields.items() if name not in taken}
    notes = [note for note in addition.notes if note.field not in taken]
    notes += [Note(name, f"{enricher.name} does not replace it") for name in taken]
    origins = dict.fromkeys(fields, addition.origin or enricher.name)
    provenance = {**draft.provenance, **origins}
    return draft.with_data({**draft.data, **fields}, *notes, provenance=provenance)
