"""Templates generated from a seed, each when it is requested."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from random import Random
from typing import Any

from longline.core.clock import utc_datetime
from longline.sandbox.seeded import Picks, chance, draw, stream
from longline.sandbox.templates import words
from longline.sandbox.templates.descriptions import make_description, make_video_id
from longline.sandbox.templates.node_types import describe
from longline.sandbox.templates.oddities import Oddity, distort, oddities_of
from longline.sandbox.templates.template import Shelf, Summary, Template
from longline.sandbox.templates.titles import is_cyrillic, make_author, make_title
from longline.sandbox.templates.workflows import make_workflow

_FIRST_DAY = 1_572_696_000.0  # 2019-11-02
_SPAN = 218_000_000.0  # up to October 2026
_GROWTH = 0.35  # each year brings more templates than all years before it
_UNUSED_SHARE = 1 / 3
_PAID_SHARE = 0.14


class GeneratedShelf(Shelf):
    """Any number of templates; only their ids are in memory.

    `site` returns the base URL of images, which is known only once the server listens.
    """

    def __init__(self, items: int, seed: int, *, odd_shapes: bool, site: Callable[[], str]) -> None:
        self._seed = seed
        self._odd_shapes = odd_shapes
        self._site = site
        self._ids = array("I", islice(_used_ids(seed), items))
        self._authors = max(1, items // 3)

    @property
    def ids(self) -> Sequence[int]:
        """Numbers with gaps: about a third of them is unused."""
        return self._ids

    def title(self, template: int) -> str:
        """Generate only the title."""
        return make_title(self._seed, template, odd_shapes=self._odd_shapes)

    def summary(self, template: int) -> Summary:
        """Generate only the cheap facts."""
        return Summary(
            id=template,
            title=self.title(template),
            categories=tuple(name for _, name in self._categories(template)),
            views=self._views(template),
            created=self._created(template),
        )

    def template(self, template: int) -> Template:
        """Generate the whole template, which takes about half a millisecond."""
        title = self.title(template)
        rng = stream(self._seed, "template", template)
        video = make_video_id(rng)
        description, images = make_description(rng, self._site(), template, video)
        if is_cyrillic(title):
            description = f"{words.CYRILLIC_TEXT}\n\n{description}"
        workflow, kinds = make_workflow(rng, title, video=video)
        oddities = oddities_of(self._seed, template) if self._odd_shapes else frozenset()
        distort(workflow, oddities, rng)
        detail = {
            **self._figures(template),
            "description": description,
            "status": "published",
            "lastUpdatedBy": None if Oddity.NO_EDITOR in oddities else rng.randrange(1, 70),
            "workflowInfo": None if Oddity.NO_WORKFLOW_INFO in oddities else _info(workflow),
            "user": make_author(self._seed, self._author(template), self._site()),
            "nodes": [describe(kind) for kind in kinds],
            "categories": [
                {"id": number, "name": name} for number, name in self._categories(template)
            ],
            "image": images,
        }
        return Template(
            id=template,
            name=title,
            workflow=workflow,
            detail=detail,
            extras=self._extras(template, rng),
            integrations=[(kind.slug, kind.display) for kind in kinds],
        )

    def _figures(self, template: int) -> dict[str, Any]:
        views = self._views(template)
        return {
            "createdAt": _iso(self._created(template)),
            "views": views,
            "recentViews": views % 7,
            "totalViews": views,
        }

    def _extras(self, template: int, rng: Random) -> dict[str, Any]:
        is_paid = rng.random() < _PAID_SHARE
        return {
            "price": rng.randrange(5, 80) if is_paid else 0,
            "purchaseUrl": f"{self._site()}/buy/{template}" if is_paid else None,
            "difficulty": rng.choice(("beginner", "intermediate", "advanced", None)),
            "updatedAt": _iso(self._created(template) + rng.randrange(30 * 86400)),
            "readyToDemo": None,
            "hidden": False,
        }

    def _created(self, template: int) -> float:
        # Later ids are later templates, so the order of ids is the order of dates.
        age = template / self._ids[-1]
        return _FIRST_DAY + _SPAN * float(age**_GROWTH)

    def _views(self, template: int) -> int:
        return int(40.0 / (chance(self._seed, "views", template) + 0.0002) ** 1.3)

    def _author(self, template: int) -> int:
        return draw(self._seed, "author of", template) % self._authors

    def _categories(self, template: int) -> list[tuple[int, str]]:
        picks = Picks(draw(self._seed, "categories", template))
        return list({picks.of(words.CATEGORIES): None for _ in range(1 + picks.below(3))})


def _used_ids(seed: int) -> Iterator[int]:
    return (number for number in count(1) if chance(seed, "unused", number) >= _UNUSED_SHARE)


def _info(workflow: dict[str, Any]) -> dict[str, Any]:
    types: dict[str, dict[str, int]] = {}
    for node in workflow["nodes"]:
        types.setdefault(node["type"], {"count": 0})["count"] += 1
    return {"nodeCount": len(workflow["nodes"]), "nodeTypes": types}


def _iso(seconds: float) -> str:
    return (
        utc_datetime(seconds).strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(seconds * 1000) % 1000:03d}Z"
    )
