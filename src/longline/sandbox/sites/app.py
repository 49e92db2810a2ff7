"""A site that is empty without JavaScript: a script fetches JSON and renders the items."""

from __future__ import annotations

from typing import Any, ClassVar

from aiohttp import web

from longline.sandbox.seeded import Picks, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import PracticeSite, Truth, document, missing, query_number
from longline.sandbox.templates.pages import picture
from longline.sandbox.templates.routes import reply

_ITEMS, _A_STEP = 200, 50
_SCRIPT = """
const root = document.getElementById("root");
const how = document.body.dataset;

function draw(item) {
  const card = document.createElement("article");
  card.className = "card";
  card.dataset.id = item.id;
  const parts = [["h2", "name", item.name], ["span", "price", item.price.toFixed(2)],
                 ["p", "text", item.text]];
  for (const [tag, name, text] of parts) {
    const part = document.createElement(tag);
    part.className = name;
    part.textContent = text;
    card.append(part);
  }
  const link = document.createElement("a");
  link.href = "/app/item/" + item.id + "/";
  link.textContent = "more";
  card.append(link);
  root.append(card);
}

let from = 0, total = 1, isBusy = false;
async function more() {
  if (isBusy || from >= total) return;
  isBusy = true;
  const answer = await (await fetch("/app/items.json?from=" + from)).json();
  answer.items.forEach(draw);
  total = answer.total;
  from += answer.items.length;
  isBusy = false;
  if (from >= total) document.body.classList.add("done");
}

async function begin() {
  if (how.item) {
    draw(await (await fetch("/app/items/" + how.item + ".json")).json());
    document.body.classList.add("done");
    return;
  }
  await more();
  if (how.mode === "all") while (from < total) await more();
  if (how.mode === "button") document.getElementById("more").addEventListener("click", more);
  if (how.mode === "pages") {
    const next = document.getElementById("next");
    next.addEventListener("click", async () => {
      const shown = [...root.children];
      await more();
      shown.forEach(card => card.remove());
      next.disabled = from >= total;
    });
  }
  if (how.mode === "scroll") {
    window.addEventListener("scroll", () => {
      if (innerHeight + scrollY >= document.body.scrollHeight - 200) more();
    });
  }
}
begin();
"""
_STYLE = "<style>.card{min-height:80px}</style>"


class App(PracticeSite):
    """Two hundred cards: all rendered, with load-more, page by page, by scrolling, or one each."""

    name: ClassVar[str] = "app"
    path: ClassVar[str] = "/app/"
    about: ClassVar[str] = (
        "200 items that only JavaScript shows: all, by button, by page, by scrolling"
    )

    def __init__(self, seed: int) -> None:
        self._items = [_item(seed, number) for number in range(1, _ITEMS + 1)]

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/app/", self._all),
            web.get("/app/button/", self._button),
            web.get("/app/pages/", self._pages),
            web.get("/app/scroll/", self._scroll),
            web.get(r"/app/item/{id:\d+}/", self._item_page),
            web.get("/app/app.js", self._script),
            web.get("/app/tracker.js", self._tracker),
            web.get("/app/picture.png", self._picture),
            web.get("/app/items.json", self._some),
            web.get(r"/app/items/{id:\d+}.json", self._one),
        ]

    def truth(self) -> Truth:
        return {"items": self._items}

    async def _all(self, _request: web.Request) -> web.Response:
        return _empty_page("all")

    async def _button(self, _request: web.Request) -> web.Response:
        return _empty_page("button", '<button id="more">More</button>')

    async def _pages(self, _request: web.Request) -> web.Response:
        return _empty_page("pages", '<button id="next">Next</button>')

    async def _scroll(self, _request: web.Request) -> web.Response:
        return _empty_page("scroll")

    async def _item_page(self, request: web.Request) -> web.Response:
        return _empty_page("item", item=request.match_info["id"])

    async def _script(self, _request: web.Request) -> web.Response:
        return web.Response(text=_SCRIPT, content_type="text/javascript", charset="utf-8")

    async def _tracker(self, _request: web.Request) -> web.Response:
        return web.Response(text="window.isTracked = true;", content_type="text/javascript")

    async def _picture(self, _request: web.Request) -> web.Response:
        return web.Response(body=picture(1), content_type="image/png")

    async def _some(self, request: web.Request) -> web.Response:
        start = query_number(request, "from", 0)
        return reply({"items": self._items[start : start + _A_STEP], "total": len(self._items)})

    async def _one(self, request: web.Request) -> web.Response:
        place = int(request.match_info["id"]) - 1
        return reply(self._items[place]) if 0 <= place < len(self._items) else missing()


def _empty_page(mode: str, inside: str = "", *, item: str = "") -> web.Response:
    body = (
        f'<script>document.body.dataset.mode = "{mode}"; document.body.dataset.item = "{item}";'
        f'</script><main id="root"></main>{inside}'
        '<img src="/app/picture.png" alt=""><script src="/app/tracker.js"></script>'
        '<script src="/app/app.js"></script><noscript>Please switch JavaScript on.</noscript>'
    )
    return document("App", body, head=_STYLE)


def _item(seed: int, number: int) -> dict[str, Any]:
    picks = Picks(draw(seed, "app", number))
    return {
        "id": number,
        "name": f"{picks.of(words.LOOKS)} {picks.of(words.SERIES)} {number}",
        "price": (100 + picks.below(9000)) / 100,
        "text": picks.of(words.REMARKS),
    }
