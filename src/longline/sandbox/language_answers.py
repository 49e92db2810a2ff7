"""What the stand-in for a language model says: JSON of the shape that is wanted, from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from longline.sandbox import words
from longline.sandbox.draws import stream

_LARGEST = 100
_MOST = 3
_DEEPEST = 12


def fitting(schema: Mapping[str, Any], text: str) -> Any:
    """Return a value that fits a schema; the same text always gets the same one."""
    return _Maker(schema, stream(0, "language model", text)).value(schema)


class _Maker:
    """Makes values of one schema; knows what practice tasks use of JSON Schema, and no more."""

    def __init__(self, root: Mapping[str, Any], rng: Random) -> None:
        self._root = root
        self._rng = rng
        self._depth = 0

    def value(self, schema: Mapping[str, Any]) -> Any:
        if "$ref" in schema:
            return self.value(self._referred(schema["$ref"]))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        kind = schema.get("type", "object" if "properties" in schema else "string")
        kinds = [kind] if isinstance(kind, str) else list(kind)
        return getattr(self, f"_{self._rng.choice(kinds)}")(schema)

    def _object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        self._depth += 1
        needed = schema.get("required", [])
        wanted = {
            name: below
            for name, below in schema.get("properties", {}).items()
            if name in needed or self._depth < _DEEPEST
        }
        made = {name: self.value(below) for name, below in wanted.items()}
        self._depth -= 1
        return made

    def _array(self, schema: Mapping[str, Any]) -> list[Any]:
        least = schema.get("minItems", 0)
        most = min(schema.get("maxItems", least + _MOST), least + _MOST)
        if self._depth >= _DEEPEST:
            most = least
        return [self.value(schema.get("items", {})) for _ in range(self._rng.randint(least, most))]

    def _string(self, schema: Mapping[str, Any]) -> str:
        text = self._rng.choice(words.SENTENCES).ljust(schema.get("minLength", 0), ".")
        return text[: schema.get("maxLength")]

    def _integer(self, schema: Mapping[str, Any]) -> int:
        least = int(schema.get("minimum", 0))
        return self._rng.randint(least, int(schema.get("maximum", least + _LARGEST)))

    def _number(self, schema: Mapping[str, Any]) -> float:
        least = float(schema.get("minimum", 0))
        return round(self._rng.uniform(least, float(schema.get("maximum", least + _LARGEST))), 2)

    def _boolean(self, _schema: Mapping[str, Any]) -> bool:
        return self._rng.random() < 0.5  # noqa: PLR2004  # heads or tails

    def _null(self, _schema: Mapping[str, Any]) -> None:
        return None

    def _referred(self, reference: str) -> Mapping[str, Any]:
        place: Any = self._root
        for part in reference.split("/")[1:]:
            place = place[part]
        found: Mapping[str, Any] = place
        return found
