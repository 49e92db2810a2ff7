"""The key `alerts` of manifests: rules that are changed for their source."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from longline.config.documents import Document, parse_document, read_content
from longline.config.settings import Settings
from longline.config.validation import describe_unknown_key, select_problem
from longline.core.errors import BadFile
from longline.monitoring.alerts.configuration import read_alert_settings
from longline.monitoring.alerts.rules import (
    RULE_KINDS,
    Rule,
    RuleLimits,
    change_rule,
    default_rules,
    make_rules,
)
from longline.sources.loader import parse_entry, yaml_files
from longline.sources.manifest import Manifest

SourceRules = Mapping[str, RuleLimits]
"""What a manifest says about rules, by name."""

_LOG = logging.getLogger(__name__)
_KEY = "alerts"
_NAMES = [one.name for one in RULE_KINDS.values() if one.subject == "source"]
_LIMITS: TypeAdapter[dict[str, RuleLimits]] = TypeAdapter(dict[str, RuleLimits])


def source_rules_in(document: Document) -> SourceRules:
    """Return what a manifest says about rules; nothing for other files.

    Raises:
        BadFile: it is invalid; of several problems, the first in the file is reported.
    """
    node = document.node((_KEY,))
    if node is None or node.content is None:
        return {}
    try:
        found = _LIMITS.validate_python(node.plain())
    except ValidationError as error:
        one = select_problem(error, node)
        raise document.error((_KEY, *one.loc), one.problem, (_KEY, *one.near)) from None
    rules = {rule.name: rule for rule in default_rules()}
    for name, values in found.items():
        if name not in _NAMES:
            problem = describe_unknown_key(name, _NAMES).replace("key", "rule", 1)
            if name in RULE_KINDS:
                problem = f"it is about a {RULE_KINDS[name].subject}; change it in longline.yaml"
            raise document.error((_KEY, name), problem)
        try:
            change_rule(rules[name], values)
        except PydanticCustomError as error:
            raise document.error((_KEY, name), error.message()) from None
    return found


def apply_source_rules(
    rules: Sequence[Rule], by_source: Mapping[str, SourceRules]
) -> Iterator[Rule]:
    """Yield each rule without the sources that change it, and the changed one for each of these."""
    for rule in rules:
        changed = {
            source: values[rule.name] for source, values in by_source.items() if rule.name in values
        }
        yield replace(rule, excluded=(*rule.excluded, *changed)) if changed else rule
        for source, values in changed.items():
            yield replace(change_rule(rule, values), only=(source,), excluded=())


def read_rules(settings: Settings) -> list[Rule]:
    """Return the rules as the settings file and the manifests change them.

    Raises:
        BadFile: the settings file is invalid; invalid manifests are logged.
    """
    rules = make_rules(read_alert_settings().rules)
    return [*apply_source_rules(rules, ManifestRules(settings).read())]


class ManifestRules:
    """What the manifests of a home say about rules; each is read when it has changed.

    An invalid file is logged once, and what it said before stays in use.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._found: dict[Path, tuple[str, SourceRules]] = {}

    def read(self) -> dict[str, SourceRules]:
        """Return what they say now, by source."""
        stamps: dict[Path, tuple[int, int]] = {}
        for path in yaml_files(self._settings.sources):
            try:
                status = path.stat()
                stamps[path] = status.st_mtime_ns, status.st_size
                if stamps[path] != self._stamps.get(path):
                    self._read_file(path)
            except BadFile as error:
                _LOG.warning("the rules of a manifest are not applied: %s", error)
            except OSError:  # it has just been removed
                continue
        self._stamps = stamps
        self._found = {path: one for path, one in self._found.items() if path in stamps}
        return dict(self._found.values())

    def _read_file(self, path: Path) -> None:
        content = read_content(path)
        found: SourceRules = {}
        if _KEY.encode() in content:  # most have none, and need not be parsed
            document = parse_document(content, path)
            entry = parse_entry(document)
            found = source_rules_in(document) if isinstance(entry.model, Manifest) else {}
        if found:
            self._found[path] = entry.name, found
        else:
            self._found.pop(path, None)
