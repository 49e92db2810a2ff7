"""Lists that go on by a click: in every way that sites have of showing their next page."""

from __future__ import annotations

from aiohttp import web

from tests.scripted_site import ScriptedSite

PAGES = 4
SIZE = 10

_SCRIPT = """<!doctype html><link rel="icon" href="data:,"><h1>list</h1>
<ul id="list"></ul><a class="next" href="#">next</a>
<script>
const PAGES = %(pages)d, MODE = "%(mode)s", END = "%(end)s";
const list = document.querySelector("#list"), button = document.querySelector(".next");
let page = 1;
async function show() {
  const answer = await fetch(`/rows?page=${page}`);
  const rows = answer.ok ? await answer.json() : [];
  if (MODE !== "append") list.innerHTML = "";
  for (const row of rows)
    list.insertAdjacentHTML("beforeend", `<li class="item"><b>${row}</b></li>`);
}
button.addEventListener("click", async event => {
  event.preventDefault();
  if (page >= PAGES && END === "nothing") return;
  page = page >= PAGES ? 1 : page + 1;
  if (MODE === "address") history.pushState({}, "", `?page=${page}`);
  if (MODE === "slow") await new Promise(done => setTimeout(done, 700));
  await show();
  if (page < PAGES) return;
  if (END === "gone") button.remove();
  if (END === "disabled") button.classList.add("disabled");
});
show();
</script>"""


def rows_of(page: int) -> list[str]:
    """Return what a page of the list shows."""
    return [f"thing {number}" for number in range((page - 1) * SIZE, page * SIZE)]


def build(site: ScriptedSite) -> None:
    """Put the lists there: /static/1, /posted, and /app?mode=…&end=… for those of scripts."""

    async def rows(request: web.Request) -> web.StreamResponse:
        return web.json_response(rows_of(int(request.query["page"])))

    async def app(request: web.Request) -> web.StreamResponse:
        names = {"mode": "replace", "end": "gone", "pages": str(PAGES), **request.query}
        return _html(_SCRIPT % {**names, "pages": int(names["pages"])})

    async def static(request: web.Request) -> web.StreamResponse:
        page = int(request.path.rpartition("/")[2])
        last = int(request.query.get("pages", PAGES))
        onward = f"/static/{page + 1}" + (f"?pages={last}" if request.query else "")
        target = ' target="_blank"' if request.query else ""
        link = f'<a class="next"{target} href="{onward}">next</a>' if page < last else ""
        return _html(_listed(page) + link)

    async def posted(request: web.Request) -> web.StreamResponse:
        sent = await request.post() if request.method == "POST" else {}
        page = int(str(sent.get("page", 1)))
        form = (
            f'<form method="post" action="/posted"><input name="page" value="{page + 1}">'
            '<button class="next">next</button></form>'
        )
        return _html(_listed(page) + (form if page < PAGES else ""))

    site.answers["/rows"] = rows
    site.answers["/app"] = app
    site.answers["/posted"] = posted
    site.answers |= {f"/static/{page}": static for page in range(1, 100)}


def _listed(page: int) -> str:
    things = "".join(f'<li class="item"><b>{one}</b></li>' for one in rows_of(page))
    return f"<h1>list</h1><ul>{things}</ul>"


def _html(text: str) -> web.Response:
    return web.Response(text=text, content_type="text/html")
