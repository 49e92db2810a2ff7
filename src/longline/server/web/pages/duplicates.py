"""Duplicates: pairs of records side by side, to be confirmed or rejected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from longline.analysis.duplicates import decide
from longline.core.errors import BadOption
from longline.core.json import json_value_at
from longline.server.web.context import Home
from longline.server.web.forms import read_form, redirect
from longline.server.web.pages.records import record_url
from longline.server.web.rendering import render
from longline.storage.matches import CONFIRMED, REJECTED
from longline.storage.query import path_of

router = APIRouter(include_in_schema=False)

_PAGE = 10  # pairs
_MOST_FIELDS = 40  # of each record, besides those that were compared
_VIEWS: Mapping[str, str | None] = {
    "undecided": None,
    "confirmed": CONFIRMED,
    "rejected": REJECTED,
}
_TITLES = ("title", "name")


@router.get("/duplicates")
async def show_duplicates(request: Request, web: Home) -> Response:
    """Show pairs of one kind, side by side."""
    given = request.query_params
    kinds = await web.store.matches.kinds()
    kind = given.get("kind") or next(iter(kinds), "")
    view = given.get("show", "undecided")
    if view not in _VIEWS or (kind and kind not in kinds):
        raise HTTPException(404, "There are no such pairs.")
    after = _ends_of(given.get("after", "0-0"))
    pairs, cursor = (
        await web.store.matches.page(kind, _VIEWS[view], after=after, limit=_PAGE)
        if kind
        else ([], None)
    )
    ids = {one for pair in pairs for one in (pair["left_id"], pair["right_id"])}
    rows = {row["id"]: row for row in await web.store.matches.records(ids)}
    more = {"kind": kind, "show": view, "after": f"{cursor[0]}-{cursor[1]}"} if cursor else {}
    return render(
        request,
        "duplicates.html",
        kinds=kinds,
        kind=kind,
        views=list(_VIEWS),
        chosen=view,
        pairs=[
            _pair(pair, rows[pair["left_id"]], rows[pair["right_id"]])
            for pair in pairs
            if pair["left_id"] in rows and pair["right_id"] in rows
        ],
        after=given.get("after", ""),
        is_later=after != (0, 0),
        next_url=f"/duplicates?{urlencode(more)}" if cursor else None,
    )


def _ends_of(text: str) -> tuple[int, int]:
    """Return the ids of a pair, written as `1-2`.

    Raises:
        HTTPException: it is malformed.
    """
    left, _, right = text.partition("-")
    if not (text.isascii() and left.isdigit() and right.isdigit()):
        raise HTTPException(422, "This is not a pair of records.")
    largest = 2**63 - 1
    return min(int(left), largest), min(int(right), largest)


def _pair(pair: Mapping[str, Any], left: Mapping[str, Any], right: Mapping[str, Any]) -> Any:
    compared = {one["field"] for one in pair["evidence"]}
    names = dict.fromkeys([*left["data"], *right["data"]])
    others = [name for name in names if name not in compared][:_MOST_FIELDS]
    return {
        "ends": f"{pair['left_id']}-{pair['right_id']}",
        "score": pair["score"],
        "is_match": pair["is_match"],
        "decision": pair["decision"] or "undecided",
        "decided_at": pair["decided_at"],
        "sides": [_side(row) for row in (left, right)],
        "evidence": [
            {
                **one,
                "level": _level(one),
                "left": _whole(left["data"], one, "left"),
                "right": _whole(right["data"], one, "right"),
            }
            for one in pair["evidence"]
        ],
        "others": [(name, left["data"].get(name), right["data"].get(name)) for name in others],
    }


def _side(row: Mapping[str, Any]) -> dict[str, Any]:
    titles = (row["data"].get(name) for name in _TITLES)
    return {
        "source": row["source"],
        "key": row["key"],
        "page": record_url(row["source"], row["key"]),
        "url": row["url"],
        "title": next((one for one in titles if isinstance(one, str) and one.strip()), row["key"]),
        "seen_at": row["seen_at"],
    }


def _level(evidence: Mapping[str, Any]) -> str:
    points = evidence["points"]
    return "ok" if points > 0 else "bad" if points < 0 else "dim"


def _whole(data: Mapping[str, Any], evidence: Mapping[str, Any], side: str) -> Any:
    """Return a value as the record has it now; the evidence has the beginning of a long one."""
    try:
        found = json_value_at(data, path_of(evidence["field"]))
    except BadOption:  # it is a name, and not a path
        found = data.get(evidence["field"])
    return evidence[side] if found is None else found


@router.post("/duplicates/decide")
async def decide_pair(request: Request, web: Home) -> Response:
    """Confirm or reject a pair."""
    form = await read_form(request)
    kind, decision = form.get("kind", ""), form.get("decision", "")
    ends = _ends_of(form.get("pair", ""))
    if decision not in (CONFIRMED, REJECTED):
        raise HTTPException(422, "A pair is confirmed or rejected.")
    if kind not in await web.store.matches.kinds() or ends[0] == ends[1]:
        raise HTTPException(404, "There is no such pair.")
    if len(await web.store.matches.records(ends)) != 2:  # noqa: PLR2004  # of a pair
        raise HTTPException(404, "There is no such pair.")
    await decide(web.store.matches, kind, ends, decision, at=web.clock.now())
    kept = {"kind": kind, "show": form.get("show", ""), "after": form.get("after", "")}
    query = urlencode({name: value for name, value in kept.items() if value})
    return redirect(f"/duplicates?{query}", decision.capitalize())
