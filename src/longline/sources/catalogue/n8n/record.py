"""What the data of a template must satisfy: strict on the essentials, lenient on the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StringConstraints

from longline.pipeline.quality import CrossCheck, Expect, QualityRules
from longline.sources.catalogue.n8n.inventory import parse_template_address

# ---------------- The outcomes of fetching a transcript, for modules that do without the YouTube


class TranscriptOutcome(StrEnum):
    """How the quest for one transcript ended; the last three may end otherwise another day."""

    OK = "ok"
    DISABLED = "disabled"
    NOT_FOUND = "not_found"
    UNAVAILABLE = "unavailable"
    UNPLAYABLE = "unplayable"
    AGE_RESTRICTED = "age_restricted"
    INVALID_ID = "invalid_id"
    TOKEN_REQUIRED = "token_required"  # noqa: S105  # a word for an outcome, not a secret
    DISALLOWED = "disallowed"
    BLOCKED = "blocked"
    FAILED = "failed"


TRANSIENT = frozenset(
    {TranscriptOutcome.DISALLOWED, TranscriptOutcome.BLOCKED, TranscriptOutcome.FAILED}
)


def _check_workflow(workflow: dict[str, Any]) -> dict[str, Any]:
    # Checked, not modelled: a model would put the keys of what people made in another order.
    for part, kind in (("nodes", list), ("connections", dict)):
        if not isinstance(workflow.get(part), kind):
            message = f"a workflow's {part} are a {kind.__name__}"
            raise ValueError(message)  # noqa: TRY004  # pydantic turns no TypeError into a finding
    return workflow


class N8nRecord(BaseModel):
    """One template. A field that is not named here is taken as it comes."""

    model_config = ConfigDict(extra="allow")

    id: Annotated[StrictInt, Field(gt=0)]
    title: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    url: str
    workflow: Annotated[dict[str, Any], AfterValidator(_check_workflow)] | None


# ---------------- What a good record of a template is, and which of its parts must agree

_TELLING = 100
"""Characters from which on a description tells something."""
_NAMED_BY_THE_EDITOR = re.compile(r"my workflow( \d+)?$")
_WORD = re.compile(r"[^\W_]{3,}")


def _share_told(text: Any) -> float:
    return min(1.0, len(text) / _TELLING) if isinstance(text, str) else 0.0


def _is_known_author(author: Any) -> bool:
    return isinstance(author, Mapping) and bool(author.get("username") or author.get("name"))


def _has_several_nodes(data: Mapping[str, Any]) -> bool:
    return (data.get("node_count") or 0) - (data.get("sticky_note_count") or 0) > 1


def _is_from_the_api(data: Mapping[str, Any]) -> bool:
    return data.get("endpoint") != "page"


def _has_videos(data: Mapping[str, Any]) -> bool:
    return bool(data.get("videos")) and data.get("transcripts") is not None


def _share_settled(transcripts: Any) -> float:
    # A video that has no captions is settled, too; one that we were kept from is not.
    if not transcripts:
        return 0.0
    return sum(t.get("outcome") not in TRANSIENT for t in transcripts) / len(transcripts)


def _same_id(key: Any, url: str) -> bool | None:
    found = parse_template_address(url)
    return None if found is None else found[0] == key


def _similar(title: str, other: Any) -> bool | None:
    """Return whether two titles share a word; authors name a workflow anew to publish it."""
    other = str(other)
    if not other.strip() or _NAMED_BY_THE_EDITOR.match(other.strip().lower()):
        return None
    words, others = (set(_WORD.findall(text.lower())) for text in (title, other))
    return bool(words & others) or title.strip().lower() == other.strip().lower()


def _same_count(count: int, declared: Any, types: Mapping[str, Any]) -> bool:
    # The site's count includes a start node that its list by type, rightly, no longer has.
    return count in (declared, sum(n for n in types.values() if isinstance(n, int)))


def _is_fully_read(types: Mapping[str, int], count: int) -> bool:
    return sum(types.values()) == count


RULES = QualityRules(
    layers={"metadata": 20, "workflow": 30, "content": 25, "media": 5, "transcripts": 5},
    expects=(
        Expect("metadata", "title", 4),
        Expect("metadata", "author", 2, _is_known_author),
        Expect("metadata", "categories", 2),
        Expect("metadata", "created_at"),
        Expect("metadata", "total_views"),
        Expect("workflow", "workflow", 4),
        Expect("workflow", "node_count", 3, bool),
        Expect("workflow", "connection_count", 1, bool, when=_has_several_nodes),
        Expect("content", "description", 2, when=_is_from_the_api),
        Expect("content", "description_text", 4, _share_told),
        Expect("transcripts", "transcripts", 1, _share_settled, when=_has_videos),
    ),
    checks=(
        CrossCheck("id", ("id", "url"), _same_id),
        CrossCheck("workflow name", ("title", "workflow_name"), _similar, weight=0.5),
        CrossCheck("page title", ("title", "page_title"), _similar),
        CrossCheck(
            "node count", ("node_count", "declared_node_count", "declared_node_types"), _same_count
        ),
        CrossCheck("node types", ("node_types", "declared_node_types"), dict.__eq__),
        CrossCheck("nodes read", ("node_types", "node_count"), _is_fully_read),
    ),
    consistency=15,
)
