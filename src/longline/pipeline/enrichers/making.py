"""Enrichers by name: those that are here, and those that packages add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longline.config.manifests.pipeline import ENRICHERS
from longline.config.plugins import load_plugin
from longline.core.errors import BadOption
from longline.pipeline.enrichers.base import Enricher
from longline.pipeline.enrichers.currency import CurrencyEnricher
from longline.pipeline.enrichers.geocode import GeocodeEnricher
from longline.pipeline.enrichers.language import LanguageEnricher


def make_enricher(name: str, options: Any) -> Enricher:
    """Return the enricher of this name.

    Raises:
        ConfigError: it is unknown, does not take what was written, or lacks its library.
    """
    if name == CurrencyEnricher.name:
        return CurrencyEnricher(options)
    if name == GeocodeEnricher.name:
        return GeocodeEnricher(options)
    if name == LanguageEnricher.name:
        return LanguageEnricher(options)
    make = load_plugin(ENRICHERS, name)
    if make is None:
        raise BadOption("enrich", f"there is no enricher {name!r} here")
    enricher: Enricher = make(**options) if isinstance(options, Mapping) else make(options)
    if not callable(getattr(enricher, "enrich", None)):
        raise BadOption("enrich", f"the plugin {name!r} is no enricher: it has no enrich()")
    return enricher
