"""What a YAML parser complains about, in words that say what to write instead."""

from __future__ import annotations

import yaml

# Words of both parsers (libyaml, and PyYAML's own), and ours; the first that fits is told.
_WORDS = (
    ("mapping values are not allowed", "a colon too many in this line, or a line indented wrongly"),
    ("alphabetic or numeric", "a text that begins with * or & needs quotes"),
    ("',' or ']'", "a list is not closed with ]"),
    ("',' or '}'", "names and values are not closed with }"),
    ("unexpected end of stream", "a quote is not closed"),
    ("expected ':'", "a name without a colon after it"),
    ("unknown escape character", "in double quotes \\ is special; use single quotes"),
    ("cannot start any token", "this character cannot begin a text; put the text in quotes"),
    ("expected key", "this line is not indented as those above it"),
    ("<block end>", "this line is not indented as those above it"),
    ("'-' indicator", "this line is not indented as those above it"),
    ("sequence entries are not allowed", "a list begins in a line of its own, or in [ ]"),
    ("node content", "a value is missing here, or a bracket above is not closed"),
    ("undefined tag handle", "a text that begins with ! needs quotes"),
    ("block scalar", "after | or > the text begins in the next line, indented"),
    ("<document start>", "a text goes on after its end; put all of it in quotes"),
)
_BEGINS_EARLIER = ("unexpected end of stream",)


def problem_of(error: yaml.MarkedYAMLError, text: str) -> tuple[str, int, int]:
    """Return what is wrong, and its line and column from 1; zeros when unknown."""
    said = error.problem or error.context or "it cannot be read"
    mark = error.problem_mark or error.context_mark
    if any(words in said for words in _BEGINS_EARLIER):
        mark = error.context_mark or mark
    if mark is None:
        return said, 0, 0
    return _words(said, text, mark), mark.line + 1, mark.column + 1


def _words(said: str, text: str, mark: yaml.Mark) -> str:
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation or line[mark.column : mark.column + 1] == "\t":
        return "a tab; indent with spaces"
    return next((ours for theirs, ours in _WORDS if theirs in said), said)
