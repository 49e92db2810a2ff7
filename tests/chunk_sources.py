"""Sources for tests of what runs on clusters."""

from __future__ import annotations

from typing import Any

from longline.core.model import Item
from longline.sources.base import layer
from longline.sources.visit import Visit
from tests.little import Little


class Branching(Little):
    """Each of its first three pages leads to another one."""

    name = "branching"

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        number = int(visit.item.key)
        if number < self.options.count:
            further = number + self.options.count
            visit.add(Item(str(further), f"{self.options.site}/item/{further}"))
        return {"text": (await visit.fetch(visit.item.url)).text}
