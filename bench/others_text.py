"""Judge how longline reads characters and structured data by the cases of w3lib and extruct.

The published tests of w3lib are run in a child process against the w3lib of the same source
distribution. Each call of a function that longline has a counterpart of is recorded with its
result, and that is the case. Some of its pages are random, so the number of cases may vary.

extruct publishes its tests without their pages; its cases are the examples of its README that
include a page.
"""

from __future__ import annotations

import ast
import codecs
import doctest
import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

from selectolax.lexbor import LexborHTMLParser
from yarl import URL

from longline.http.charset import decode, encoding_of, header_encoding, prescan
from longline.http.messages import Page
from longline.sources.html.content import Microdata, node_text, open_graph_of
from longline.sources.html.places import PageScope
from others_frame import Suite, Verdict

_LONGEST_BODY = 10_000  # bytes; longer ones only test that w3lib does not crash
_SITE = "http://www.example.com/index.html"
_RECORDED = {
    "w3lib.encoding": (
        *("http_content_type_encoding", "html_body_declared_encoding", "resolve_encoding"),
        *("read_bom", "to_unicode", "html_to_unicode"),
    ),
    "w3lib.html": ("replace_entities", "get_base_url"),
}
_FILES = ("tests/test_encoding.py", "tests/test_html.py")
# Runs in the child: argument 1 is the folder of the distribution, 2 the file for the calls.
_RECORDER = f"""
import functools, importlib, pickle, sys
sys.path.insert(0, sys.argv[1])
calls, depth = [], [0]

def recorded(name, function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        depth[0] += 1
        try:
            result = function(*args, **kwargs)
        finally:
            depth[0] -= 1
        if not depth[0]:
            try:
                calls.append(pickle.dumps((name, args, kwargs, result)))
            except (TypeError, AttributeError, pickle.PicklingError):
                pass
        return result
    return call

for module, names in {_RECORDED!r}.items():
    loaded = importlib.import_module(module)
    for name in names:
        setattr(loaded, name, recorded(name, getattr(loaded, name)))
import pytest
files = [sys.argv[1] + "/" + one for one in {_FILES!r}]
options = ["-q", "-p", "no:cacheprovider", "--rootdir", sys.argv[1]]
code = pytest.main([*options, "-c", sys.argv[1] + "/pyproject.toml", *files])
with open(sys.argv[2], "wb") as file:
    pickle.dump(list(dict.fromkeys(calls)), file)
sys.exit(code)
"""
_LABELS = "the label is not in the Encoding Standard, so browsers do not know it either"
_BODY_TAG = "the standard does not stop at the body tag: a meta in the first bytes counts"
_META_UTF16 = (
    "by the standard, a page whose meta says utf-16 is read as UTF-8, since that meta is ASCII"
)
_REFERENCES = "the HTML standard gives such a reference a meaning; w3lib removes it"
_NUMBERED = re.compile(r"&#(\d+);")
_C1 = range(0x80, 0xA0)  # control characters, of which the standard makes others
_UNQUOTED = "by the HTML standard, an unquoted attribute continues after `<`; w3lib ends it there"
_UNQUOTED_LESS = re.compile(r"href=[^\s\"'>]*<")
_NOSCRIPT = "scripts are not run, so the content of noscript counts"
_UNFINISHED = "the HTML standard drops a tag that is not finished at the end of the page"
_PREFIX = "a field names its property, so every prefix can be read, declared or not"
_MARK_IN_URL = "w3lib adds the bytes of the byte order mark to the address"


def _w3lib_calls(folder: Path) -> list[tuple[str, tuple[Any, ...], dict[str, Any], Any]]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "calls"
        command = [sys.executable, "-c", _RECORDER, str(folder.resolve()), str(place)]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=300, cwd=name
        )
        if done.returncode != 0:
            raise RuntimeError(f"the tests of w3lib fail here: {done.stdout[-2000:]}{done.stderr}")
        return [pickle.loads(one) for one in pickle.loads(place.read_bytes())]  # noqa: S301


def _codec(name: str | None) -> str | None:
    return None if name is None else codecs.lookup(name).name


def _named(found: Any) -> str | None:
    return None if found is None else _codec(found.codec)


def _header(text: str | None) -> str | None:
    return _named(header_encoding(text or ""))


def _declared(body: str | bytes) -> str | None:
    return _named(prescan(body.encode() if isinstance(body, str) else body))


def _by_mark(data: bytes) -> str:
    return decode(data, "").text


def _converted(header: str | None, body: bytes) -> str:
    return decode(body, header or "").text


def _without_references(text: str | bytes, _encoding: str = "utf-8") -> str:
    source = text.decode(_encoding) if isinstance(text, bytes) else text
    node = LexborHTMLParser(f"<p>{source}</p>").css_first("p")
    return node_text(node) if node is not None else ""


def _base(text: str | bytes, base: str, encoding: str) -> str:
    body = text if isinstance(text, bytes) else text.encode(encoding)
    label = codecs.lookup(encoding).name.replace("_", "-").replace("iso2022", "iso-2022")
    headers = {"content-type": f"text/html; charset={label}"}
    return PageScope(Page(base, 200, headers, body)).base


def _judged(  # noqa: PLR0911  # one for each function
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[Any, Any] | None:
    """Return the expected value and that of longline; None without a counterpart."""
    if name == "http_content_type_encoding":
        return _codec(result), _header(*args)
    if name == "html_body_declared_encoding":
        return _codec(result), _declared(*args)
    if name == "resolve_encoding":
        return _codec(result), _named(encoding_of(*args))
    if name == "read_bom":
        encoding, mark = result
        text = args[0][len(mark) :].decode(encoding) if encoding else args[0].decode()
        return text, _by_mark(args[0])
    if name == "to_unicode" and len(args[0]) <= _LONGEST_BODY:  # longer: must only not crash
        return result, _converted(f"text/html; charset={args[1]}", args[0])
    if name == "html_to_unicode" and not kwargs and isinstance(args[1], bytes):
        return result[1], _converted(*args[:2])
    if name == "replace_entities" and not kwargs.keys() - {"encoding"} and len(args) == 1:
        text = args[0].decode("latin-1") if isinstance(args[0], bytes) else args[0]
        if "<" in text or len(text) > _LONGEST_BODY:
            return None  # markup: its text is another job
        given = kwargs.get("encoding", "utf-8")
        return " ".join(result.split()), _without_references(args[0], given)
    if name == "get_base_url" and not kwargs.keys() - {"encoding"}:
        base, given = (*args[1:], *("", kwargs.get("encoding", "utf-8"))[len(args) - 1 :])
        base = base.decode() if isinstance(base, bytes) else base
        return str(URL(result)), str(URL(_base(args[0], base, given)))
    return None


def _judge_w3lib(folder: Path) -> list[Verdict]:
    verdicts = []
    for name, args, kwargs, result in _w3lib_calls(folder):
        pair = _judged(name, args, kwargs, result)
        if pair is None:
            continue
        expected, got = pair
        given = ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())])
        case = f"{name}({given})"[:300]
        reason = "" if expected == got else _policy(name, args, expected)
        verdicts.append(Verdict(case, repr(expected), repr(got), _kind(pair, reason), reason))
    return verdicts


def _kind(pair: tuple[Any, Any], reason: str) -> Literal["right", "refused", "wrong", "policy"]:
    expected, got = pair
    if expected == got:
        return "right"
    if reason:
        return "policy"
    return "refused" if got is None or "\ufffd" in got else "wrong"


def _policy(  # noqa: PLR0911  # one for each reason
    name: str, args: tuple[Any, ...], expected: Any
) -> str:
    """Return why longline differs on purpose; "" where it does not."""
    if name == "resolve_encoding" and encoding_of(args[0]) is None:
        return _LABELS
    if name == "to_unicode" and encoding_of(args[1]) is None:
        return _LABELS
    if name == "html_body_declared_encoding":
        return _BODY_TAG if "<body>" in str(args[0]) else ""
    if name == "html_to_unicode":
        is_unknown = args[0] is not None and encoding_of(args[0].rpartition("=")[2]) is None
        return _LABELS if is_unknown else _META_UTF16 if b"utf-16" in args[1] else ""
    if name == "replace_entities":
        numbers = [int(one) for one in _NUMBERED.findall(str(args[0]))]
        is_odd = any(one in _C1 or one > sys.maxunicode for one in numbers)
        return _REFERENCES if is_odd else ""
    if name == "get_base_url":
        text = str(args[0])
        if "noscript" in text:
            return _NOSCRIPT
        if _UNQUOTED_LESS.search(text):
            return _UNQUOTED
        return _MARK_IN_URL if "%FF%FE" in expected else "" if ">" in text else _UNFINISHED
    return ""


def _examples(folder: Path) -> list[tuple[str, str, Any]]:
    """Return extractor, page and expected data of the examples in the README of extruct."""
    found: list[tuple[str, str, Any]] = []
    page, extractor = "", ""
    text = (folder / "README.rst").read_text("utf-8")
    for example in doctest.DocTestParser().get_examples(text):
        if example.source.startswith("html ="):
            page = ast.literal_eval(example.source.partition("=")[2].strip())
        elif "import" in example.source and "Extractor" in example.source:
            extractor = example.source.split("import")[1].split("#")[0].strip()
        elif example.want.startswith(("[", "{")) and page and extractor:
            found.append((extractor, page, ast.literal_eval(example.want)))
            page = ""
    return found


def _as_extruct(item: Any) -> Any:
    """Return an item of microdata in the form that extruct gives it."""
    if isinstance(item, list):
        return [_as_extruct(one) for one in item]
    if not isinstance(item, dict):
        return item
    types = item.get("@type", [])
    named = {"type": types[0] if len(types) == 1 else types} if types else {}
    values = {name: _as_extruct(one) for name, one in item.items() if not name.startswith("@")}
    return {**named, "properties": values}


def _read_like(extractor: str, page: str) -> Any:
    tree = LexborHTMLParser(page)
    if extractor == "MicrodataExtractor":
        return [_as_extruct(one) for one in Microdata(tree, _SITE).within(None)]
    if extractor == "JsonLdExtractor":
        return PageScope(Page(_SITE, 200, {}, page.encode())).json_ld[:1]
    if extractor == "OpenGraphExtractor":
        return [[name, one] for name, values in open_graph_of(tree).items() for one in values]
    return None


def _judge_extruct(folder: Path) -> list[Verdict]:
    verdicts = []
    for extractor, page, expected in _examples(folder):
        got = _read_like(extractor, page)
        if got is None:
            continue
        if extractor == "OpenGraphExtractor":
            verdicts += _open_graph_verdicts(dict(expected[0]["properties"]), dict(got))
            continue
        kind: Literal["right", "wrong"] = "right" if got == expected else "wrong"
        verdicts.append(Verdict(f"{extractor} in README.rst", repr(expected), repr(got), kind))
    return verdicts


def _open_graph_verdicts(expected: dict[str, str], got: dict[str, str]) -> list[Verdict]:
    found = []
    for name in {**expected, **got}:
        wanted, read = expected.get(name), got.get(name)
        case = f"OpenGraphExtractor in README.rst: {name}"
        if wanted is None:
            found.append(Verdict(case, "None", repr(read), "policy", _PREFIX))
        else:
            is_right = wanted == read
            found.append(Verdict(case, wanted, repr(read), "right" if is_right else "wrong"))
    return found


SUITES = (
    Suite("characters", "w3lib", "2.5.0", _judge_w3lib, least_right=0.95),
    Suite("structured data", "extruct", "0.18.0", _judge_extruct),
)
