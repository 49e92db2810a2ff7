"""Where a source begins: addresses, with parameters and ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from longline.config.manifests.addresses import check_address
from longline.config.manifests.templates import fill, names_in
from longline.config.written import Written, wrong

Scalar = str | int | float
_SCHEMES = ("http://", "https://", "{")
MOST_ADDRESSES = 1_000_000
"""A source with more of them than this has a mistake in its ranges, or needs another way in."""


class Range(Written):
    """Whole numbers from one to another, both included: {from: 1, to: 10}."""

    first: int | str = Field(alias="from")
    last: int | str = Field(alias="to")
    step: int = 1
    digits: int = Field(default=0, ge=0, le=40)
    """Write numbers with so many digits at least: 5 makes 00001."""

    @model_validator(mode="before")
    @classmethod
    def _know_every_name(cls, values: Any) -> Any:
        for name in values if isinstance(values, Mapping) else ():
            if name not in {"from", "to", "step", "digits"}:
                raise wrong(
                    f"there is no setting {str(name)!r} here; a range has from, to, step, digits"
                )
        return values

    @model_validator(mode="after")
    def _goes_somewhere(self) -> Self:
        if self.step == 0:
            raise wrong("step must not be 0")
        if isinstance(self.first, int) and isinstance(self.last, int) and not self._numbers({}):
            raise wrong(
                f"there is nothing from {self.first} to {self.last} in steps of {self.step}"
            )
        return self

    def names(self) -> list[str]:
        """Return the parameters that the ends refer to."""
        ends = (end for end in (self.first, self.last) if isinstance(end, str))
        return [name for end in ends for name in names_in(end)]

    def values(self, parameters: Mapping[str, Any]) -> Iterator[Scalar]:
        """Yield what the range holds.

        Raises:
            ValueError: an end is no whole number.
        """
        for number in self._numbers(parameters):
            yield f"{number:0{self.digits}}" if self.digits else number

    def size(self, parameters: Mapping[str, Any]) -> int:
        """Return how many numbers the range holds.

        Raises:
            ValueError: an end is no whole number.
        """
        numbers = self._numbers(parameters)
        # `len` knows no more than 64 bits.
        return max(
            0, (numbers.stop - numbers.start - (1 if self.step > 0 else -1)) // self.step + 1
        )

    def _numbers(self, parameters: Mapping[str, Any]) -> range:
        first, last = (
            end if isinstance(end, int) else int(fill(end, parameters))
            for end in (self.first, self.last)
        )
        return range(first, last + (1 if self.step > 0 else -1), self.step)


def _form(value: Any) -> str | None:
    if isinstance(value, Mapping | Range):
        return "range"
    return "list" if isinstance(value, list | tuple) and value else None


_Values = Annotated[
    Annotated[Range, Tag("range")] | Annotated[tuple[Scalar, ...], Tag("list")],
    Discriminator(
        _form,
        custom_error_type="each",
        custom_error_message="write a list of values, or a range such as {{from: 1, to: 10}}",
    ),
]


class Start(Written):
    """One address, or one for each value of its names."""

    url: str
    each: dict[str, _Values] = Field(default_factory=dict)
    """What a name in the address stands for, one after the other: a list, or {from: 1, to: 10}."""

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str) -> str:
        if not url.startswith(_SCHEMES):
            raise wrong(
                "an address begins with http:// or https://, or with a parameter: {base_url}/"
            )
        return check_address(url)

    @model_validator(mode="after")
    def _uses_each(self) -> Self:
        for name in self.each:
            if name not in names_in(self.url):
                raise wrong(f"{{{name}}} is not in the address, so each.{name} changes nothing")
        if all(not isinstance(one, Range) or not one.names() for one in self.each.values()):
            try:
                self._check_count({})
            except ValueError as error:
                raise wrong(str(error)) from None
        return self

    def _check_count(self, parameters: Mapping[str, Any]) -> None:
        sizes = (
            one.size(parameters) if isinstance(one, Range) else len(one)
            for one in self.each.values()
        )
        if (count := math.prod(sizes)) > MOST_ADDRESSES:
            message = f"these are {count:,} addresses, and more than {MOST_ADDRESSES:,} are refused"
            raise ValueError(message)

    def unknown(self, parameters: Mapping[str, Any]) -> str | None:
        """Return a name that nobody explains, or None."""
        ranges = [one for one in self.each.values() if isinstance(one, Range)]
        for name in [*names_in(self.url), *(name for one in ranges for name in one.names())]:
            if name not in parameters and name not in self.each:
                return name
        return None

    def addresses(self, parameters: Mapping[str, Any]) -> Iterator[str]:
        """Yield every address, the last name changing fastest.

        Raises:
            ValueError: an end of a range is no whole number, or they are too many.
        """
        self._check_count(parameters)
        for values in _combined(tuple(self.each.values()), parameters):
            named = dict(zip(self.each, values, strict=True))
            yield fill(self.url, {**parameters, **named}, in_address=True)


def _combined(
    sets: tuple[Range | tuple[Scalar, ...], ...], parameters: Mapping[str, Any]
) -> Iterator[tuple[Scalar, ...]]:
    """Yield every choice of one value from each set, and hold none of the sets in memory."""
    if not sets:
        yield ()
        return
    first = sets[0].values(parameters) if isinstance(sets[0], Range) else sets[0]
    for value in first:
        for others in _combined(sets[1:], parameters):
            yield (value, *others)
