"""Lists of records in JSON: a response of an API, or data in the scripts of a page."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urljoin, urlsplit

from longline.config.expressions import find
from longline.devtools.propose.fields import MAX_FIELDS, ProposedField, without_clashes
from longline.devtools.propose.places import field_name
from longline.http.messages import Page

FEWEST = 2
_SELDOM = 0.1  # of the records have a value
_SIDE = re.compile(
    r"categor|menu|nav|filter|facet|breadcrumb|locale|translation|tags?$|i18n", re.IGNORECASE
)
_DEEPEST = 8
_MOST_WALKED = 20_000
_SAMPLED = 50
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYS = ("id", "_id", "uuid", "guid", "key", "sku", "slug", "code", "url", "link", "href", "name")
_TITLES = ("title", "name", "headline", "label", "text")
_ASSIGNED = re.compile(
    r"(?:(?:window|self|globalThis)\.|(?:var|let|const)\s+)([\w$.]+)\s*=\s*(?=[\[{])"
)
_DATETIME = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DECODER = json.JSONDecoder(strict=False)
_MOST_SCRIPT = 5_000_000
_ENDPOINT = re.compile(
    r"""["'`]((?:https?://[^"'`\s<>]+|/[^"'`\s<>]*|[\w./-]+\.json[^"'`\s<>]*))["'`]"""
)
_FETCHED = re.compile(
    r"""(?:fetch|axios(?:\.get)?|\.get(?:JSON)?|\.ajax|open)\s*\(\s*(?:["']GET["']\s*,\s*)?["'`]([^"'`\s]+)["'`]"""
)
_API_WORDS = re.compile(
    r"(?:/|\b)(?:api|rest|ajax|json|v\d+|data|graphql|search)(?:/|\b|\?)|\.json", re.IGNORECASE
)
_NOT_DATA = re.compile(
    r"\.(?:js|mjs|css|png|jpe?g|gif|svg|webp|ico|woff2?|ttf|map|html?)(?:\?|$)|graphql|manifest\.json|"
    r"analytics|telemetry|sentry|/log(?:in|out|s)?\b",
    re.IGNORECASE,
)
_DATA_ATTRIBUTES = ("data-api", "data-url", "data-endpoint", "data-src", "data-source", "data-feed")


@dataclass(frozen=True, slots=True)
class RecordList:
    """A list of objects in JSON: its path (jmespath) and the objects."""

    path: str
    records: Sequence[Mapping[str, Any]]
    score: float
    script: str | None = None
    """Selector of the script that contains it; None for the response of an API."""
    after: str | None = None
    """Pattern of the text before the JSON in a script."""


def find_records(value: Any) -> list[RecordList]:
    """Return the lists of objects in a JSON value, the most likely first."""
    scored = (_score_list(path, records) for path, records in _lists(value))
    found = [one for one in scored if one is not None]
    return sorted(found, key=lambda one: one.score, reverse=True)


def find_embedded(page: Page) -> list[RecordList]:
    """Return the lists of objects in the scripts of a page, the most likely first."""
    found = []
    for script, after, value in _script_values(page):
        found += [replace(one, script=script, after=after) for one in find_records(value)]
    return sorted(found, key=lambda one: one.score, reverse=True)


def _lists(root: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield every list of objects, and objects whose values are alike, with their paths."""
    waiting: list[tuple[str, Any, int]] = [("", root, 0)]
    for _ in range(_MOST_WALKED):
        if not waiting:
            return
        path, value, depth = waiting.pop(0)
        if isinstance(value, list):
            if sum(isinstance(one, dict) for one in value) > len(value) / 2:
                yield path or "@", value
                yield from _wrapped(path, value)
        elif isinstance(value, dict) and depth < _DEEPEST:
            if len(value) > FEWEST and all(isinstance(one, dict) for one in value.values()):
                yield f"values({path or '@'})", list(value.values())
            for name, inner in value.items():
                if isinstance(inner, list | dict):
                    place = f"{path}.{_quote_name(name)}" if path else _quote_name(name)
                    waiting.append((place, inner, depth + 1))


def _wrapped(path: str, records: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the objects inside of wrappers, such as `edges[].node` of GraphQL."""
    objects = [one for one in records if isinstance(one, dict)]
    for name in objects[0]:
        inner = [one.get(name) for one in objects]
        plain = max(sum(not isinstance(v, dict | list) for v in one.values()) for one in objects)
        if plain <= 2 and all(isinstance(one, dict) and len(one) > 2 for one in inner):  # noqa: PLR2004
            yield f"{path}[].{_quote_name(name)}", inner


def _quote_name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name)


def _score_list(path: str, records: Sequence[Any]) -> RecordList | None:
    objects = [one for one in records if isinstance(one, dict) and one]
    if len(objects) < FEWEST:
        return None
    counted = Counter(name for one in objects[:_SAMPLED] for name in one)
    sampled = min(len(objects), _SAMPLED)
    shared = [name for name, count in counted.items() if count >= 0.6 * sampled]
    plain = [n for n in shared if any(_is_plain(one.get(n)) for one in objects[:_SAMPLED])]
    varying = [n for n in plain if len({str(one.get(n)) for one in objects[:_SAMPLED]}) > 1]
    if not varying:
        return None
    text = sum(
        min(len(str(one.get(n))), 80)
        for one in objects[:_SAMPLED]
        for n in varying
        if _is_plain(one.get(n))
    )
    has_title = any(name.lower() in _TITLES for name in varying)
    homogeneity = sum(counted[name] for name in shared) / max(1, sum(counted.values()))
    score = len(objects) ** 0.5 * text / sampled * homogeneity * (1.5 if has_title else 1.0)
    score *= min(1.0, len(varying) / 3)
    if _SIDE.search(path):
        score *= 0.2
    return RecordList(path, objects, score)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and value != ""


def record_fields(found: RecordList) -> list[ProposedField]:
    """Return the fields of records: plain values, one level of objects, lists of plain values."""
    sample = found.records[:_SAMPLED]
    fields = []
    for path, is_many in _paths(sample):
        values = [find(path, one) for one in sample]
        filled = [value for value in values if value not in (None, "", [], {})]
        if not filled:
            continue
        texts = [
            one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in filled
        ]
        place: dict[str, Any] = {"path": path, **({"many": True} if is_many else {})}
        kind = None if is_many else _date_type(filled)
        name = field_name(path.replace('"', ""))
        fields.append(ProposedField(name, place, texts, kind, filled=len(filled) / len(sample)))
    fields.sort(key=lambda one: one.filled < _SELDOM)  # what is nearly always empty comes last
    return without_clashes(fields[: 2 * MAX_FIELDS])


def _paths(sample: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    names = dict.fromkeys(name for one in sample for name in one)
    for name in names:
        values = [one.get(name) for one in sample]
        if any(_is_plain(value) or isinstance(value, bool) for value in values):
            yield _quote_name(name), False
        elif any(isinstance(value, list) for value in values):
            inner = [v for value in values if isinstance(value, list) for v in value]
            if inner and all(_is_plain(one) for one in inner):
                yield _quote_name(name), True
        elif any(isinstance(value, dict) for value in values):
            objects = [value for value in values if isinstance(value, dict)]
            for below in dict.fromkeys(key for one in objects for key in one):
                if any(_is_plain(one.get(below)) for one in objects):
                    yield f"{_quote_name(name)}.{_quote_name(below)}", False


def _date_type(values: Sequence[Any]) -> str | None:
    for kind, pattern in (("datetime", _DATETIME), ("date", _DATE)):
        if all(isinstance(value, str) and pattern.fullmatch(value) for value in values):
            return kind
    return None


def key_path(found: RecordList) -> str | None:
    """Return the path of a value that every record has and no two share; None without one."""
    records = found.records
    names = [name for name in records[0] if _is_plain(records[0].get(name))]
    first = [name for name in _KEYS if name in names]
    ids = [name for name in names if re.search(r"(?:^|_)id$|Id$|ID$", name)]
    for name in dict.fromkeys([*first, *ids]):
        values = [one.get(name) for one in records]
        if all(_is_plain(value) for value in values) and len(set(map(str, values))) == len(values):
            return _quote_name(name)
    return None


def _script_values(page: Page) -> Iterator[tuple[str, str | None, Any]]:
    """Yield the JSON in the scripts of a page, each with the selector of its script."""
    for script in page.css("script:not([src])"):
        text = script.text()
        if not text or len(text) > _MOST_SCRIPT:
            continue
        kind = (script.attributes.get("type") or "").lower()
        name = script.attributes.get("id")
        if "json" in kind:
            value = _decode_prefix(text.strip())
            if value is not None:
                yield (
                    (f"#{name}" if name and _PLAIN.fullmatch(name) else f'script[type="{kind}"]'),
                    None,
                    value,
                )
            continue
        for found in _ASSIGNED.finditer(text):
            value = _decode_prefix(text[found.end() :])
            if isinstance(value, dict | list) and len(value) > 0:
                yield "script:not([src])", rf"{re.escape(found[1])}\s*=\s*", value


def _decode_prefix(text: str) -> Any:
    try:
        return _DECODER.raw_decode(text)[0]
    except (json.JSONDecodeError, RecursionError):
        return None


def endpoints_in(page: Page, scripts: Sequence[str]) -> list[str]:
    """Return addresses in a page and its scripts that may return JSON, likely ones first."""
    texts = [*(one.text() for one in page.css("script:not([src])")), *scripts]
    named = Counter[str]()
    for text in texts:
        named.update(dict.fromkeys(_FETCHED.findall(text), 3))
        named.update(
            dict.fromkeys((one for one in _ENDPOINT.findall(text) if _API_WORDS.search(one)), 1)
        )
    for name in _DATA_ATTRIBUTES:
        for node in page.css(f"[{name}]"):
            named[node.attributes.get(name) or ""] += 2
    for node in page.css("link[rel=preload][as=fetch], link[type='application/json']"):
        named[node.attributes.get("href") or ""] += 3
    addresses = Counter[str]()
    for text, weight in named.items():
        if text and not _NOT_DATA.search(text) and (address := request_url(page, text)):
            addresses[address] += weight + bool(_API_WORDS.search(text))
    return [address for address, _ in addresses.most_common()]


def request_url(page: Page, text: str) -> str | None:
    """Return the URL for an address in a script, on the same site, with 1 for computed parts."""
    text = re.sub(r"\$\{[^}]*\}", "1", text).replace("\\/", "/")
    text = f"{text}1" if text.endswith("=") else text
    try:
        address = urljoin(page.url, text)
        parts, own = urlsplit(address), urlsplit(page.url)
        sites = [(one.hostname or "").split(".")[-2:] for one in (parts, own)]
    except ValueError:
        return None
    is_same_site = sites[0] == sites[1]
    return address if parts.scheme in {"http", "https"} and is_same_site else None
