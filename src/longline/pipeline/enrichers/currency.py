"""Convert amounts to another currency by a table of rates with a date."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

from longline.pipeline.enrichers.base import Addition, empty_addition
from longline.pipeline.manifest import Currency
from longline.pipeline.stages import checked_step


class CurrencyEnricher:
    """Converts one field; an unknown currency gives None with a note."""

    name = "currency"

    def __init__(self, spec: Currency) -> None:
        self._spec = spec
        self._rates = {code: Decimal(str(rate)) for code, rate in spec.rates.items()}
        self._rates[spec.to] = Decimal(1)
        self.version = f"rates of {spec.date}"
        self._origin = f"currency, {spec.field} by the rates of {spec.date}"

    @classmethod
    def with_options(cls, **options: Any) -> CurrencyEnricher:
        """Make one from the options of `currency` in a manifest.

        Raises:
            BadOption: an option is invalid.
        """
        return cls(checked_step(Currency, **options))

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        spec, target = self._spec, self._spec.target
        amount, code = self._money(data)
        if amount is None:
            return empty_addition(target, f"{spec.field} is not an amount", self._origin)
        if code is None:
            return empty_addition(target, f"{spec.field} names no currency", self._origin)
        if code not in self._rates:
            why = f"there is no rate for {code} in the table of {spec.date}"
            return empty_addition(target, why, self._origin)
        step = Decimal(1).scaleb(-spec.digits)
        try:
            worth = (amount * self._rates[code]).quantize(step, ROUND_HALF_UP)
        except InvalidOperation:
            return empty_addition(target, f"{spec.field} is too large", self._origin)
        return Addition({target: float(worth)}, (), self._origin)

    def _money(self, data: Mapping[str, Any]) -> tuple[Decimal | None, str | None]:
        spec = self._spec
        value: Any = data.get(spec.field)
        named = data.get(spec.currency) if spec.currency else None
        if isinstance(value, Mapping):
            value, named = value.get("amount"), value.get("currency") or named
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        amount = Decimal(str(value)) if is_number else None
        if amount is not None and not amount.is_finite():
            amount = None
        code = named if isinstance(named, str) and named else spec.assume
        return amount, code.strip().upper() if code else None
