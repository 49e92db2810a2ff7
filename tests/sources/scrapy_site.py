"""The site that the spiders of the Scrapy project are for."""

from __future__ import annotations

from aiohttp import web

from tests.scripted_site import ScriptedSite

PAGES = 40


def build(site: ScriptedSite) -> None:
    """Put all pages there."""
    for number in (1, 2, 3):
        rows = "".join(f"<li><b>good {number}-{n}</b><i>{n}.50 €</i></li>" for n in range(5))
        onward = f'<a class="next" href="{number + 1}">next</a>' if number < 3 else ""
        says(site, f"/goods/{number}", f"<ul>{rows}</ul>{onward}")
    _shelves(site)
    _members(site)


def says(site: ScriptedSite, path: str, html: str, status: int = 200) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        seen = f"<p>{request.headers.get('X-Project')} {request.cookies.get('lang')}</p>"
        return web.Response(
            text=f"<html>{html}{seen}</html>", content_type="text/html", status=status
        )

    site.answers[path] = answer


def _shelves(site: ScriptedSite) -> None:
    names = ["a", "b", "a", "gone", "elsewhere"]
    shelves = "".join(f'<a class="shelf" href="/shelf/{name}">{name}</a>' for name in names)
    away = '<a class="shelf" href="http://localhost:1/away">away</a>'
    says(site, "/shelves", shelves + away)
    things = {"a": ["1", "2", "moved"], "b": ["2", "3", "410"]}
    for shelf, numbers in things.items():
        links = "".join(f'<a class="thing" href="/thing/{n}">{n}</a>' for n in numbers)
        says(site, f"/shelf/{shelf}", links)
    for number in ("1", "2", "3", "4", "5"):
        deeper = f'<a href="/thing/{int(number) + 3}">more</a>'
        says(site, f"/thing/{number}", f"<h1>thing {number}</h1>{deeper}")
    says(site, "/thing/410", "<h1>was here</h1>", status=410)
    _leads(site, "/thing/moved", "/thing/1")
    _leads(site, "/shelf/elsewhere", "/shelf/b")


def _leads(site: ScriptedSite, path: str, target: str) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": target})

    site.answers[path] = answer


def _members(site: ScriptedSite) -> None:
    async def login(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            form = '<form><input name="token" value="t&amp;1"></form>'
            answer = web.Response(text=form, content_type="text/html")
            answer.set_cookie("begun", "yes")
            return answer
        site.hits["POST"] += 1
        sent = await request.post()
        is_right = (sent["user"], sent["password"], sent["token"]) == ("ann", "öl", "t&1")
        if not is_right or request.cookies.get("begun") != "yes":
            return web.Response(status=403)
        answer = web.Response(status=302, headers={"Location": "/members"})
        answer.set_cookie("session", "s3")
        return answer

    async def inside(request: web.Request) -> web.StreamResponse:
        if request.cookies.get("session") != "s3":
            return web.Response(status=403)
        links = "".join(f'<a class="page" href="/members/{n}">{n}</a>' for n in range(PAGES))
        name = request.path.rpartition("/")[2]
        html = links if name == "members" else f"<b>secret {name}</b>"
        return web.Response(text=html, content_type="text/html")

    site.answers["/login"] = login
    site.answers["/members"] = inside
    site.answers |= {f"/members/{n}": inside for n in range(PAGES)}
