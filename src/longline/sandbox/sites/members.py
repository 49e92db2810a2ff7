"""Pages for members: a login form with a hidden token, and a session that ends after a while."""

from __future__ import annotations

from html import escape
from typing import Any, ClassVar

from aiohttp import web

from longline.sandbox.seeded import Picks, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import PracticeSite, Truth, document, missing, moved, query_number

USER, PASSWORD = "angler", "practice"  # of a site that holds nothing secret
_NOTES, _A_PAGE = 24, 6
_SESSION_PAGES = 20
"""A session ends after this many pages: a collector has to log in again."""
_LOGIN = "/members/login"


class Members(PracticeSite):
    """A logbook for members; other clients are redirected to the form."""

    name: ClassVar[str] = "members"
    path: ClassVar[str] = "/members/"
    about: ClassVar[str] = f"a login form with a token and a session; {USER} / {PASSWORD}"

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._notes = [_note(seed, number) for number in range(1, _NOTES + 1)]
        self._tokens: set[str] = set()
        self._left: dict[str, int] = {}
        self.logins = 0
        """The number of logins."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(_LOGIN, self._form),
            web.post(_LOGIN, self._log_in),
            web.get("/members/", self._list_notes),
            web.get(r"/members/note/{id:\d+}", self._note_page),
        ]

    def truth(self) -> Truth:
        return {"notes": self._notes}

    async def _form(self, _request: web.Request) -> web.Response:
        token = self._new("token", len(self._tokens))
        self._tokens.add(token)
        answer = document("Log in", _form_page(token))
        answer.set_cookie("visitor", token, path="/members")
        return answer

    async def _log_in(self, request: web.Request) -> web.Response:
        form = await request.post()
        token = str(form.get("csrf_token"))
        if token not in self._tokens or request.cookies.get("visitor") != token:
            return web.Response(status=403, text="the form has expired")
        if (form.get("user"), form.get("password")) != (USER, PASSWORD):
            return document("Log in", f'<p class="error">Wrong.</p>{_form_page(token)}')
        self._tokens.discard(token)
        self.logins += 1
        session = self._new("session", self.logins)
        self._left[session] = _SESSION_PAGES
        answer = moved("/members/")
        answer.set_cookie("session", session, path="/", httponly=True)
        return answer

    async def _list_notes(self, request: web.Request) -> web.Response:
        if not self._is_member(request):
            return moved(_LOGIN)
        page = query_number(request, "page", 1)
        rows = self._notes[(page - 1) * _A_PAGE : page * _A_PAGE]
        links = "".join(
            f'<li><a class="note" href="/members/note/{row["id"]}">{escape(row["title"])}</a></li>'
            for row in rows
        )
        onward = f'<a rel="next" href="/members/?page={page + 1}">older</a>'
        has_more = page * _A_PAGE < len(self._notes)
        greeting = f'<p class="hello">Hello, {USER}</p>'
        return document("Logbook", f"{greeting}<ul>{links}</ul>{onward if has_more else ''}")

    async def _note_page(self, request: web.Request) -> web.Response:
        if not self._is_member(request):
            return moved(_LOGIN)
        place = int(request.match_info["id"]) - 1
        if not 0 <= place < len(self._notes):
            return missing()
        row = self._notes[place]
        return document(
            row["title"],
            f'<p class="hello">Hello, {USER}</p><h1>{escape(row["title"])}</h1>'
            f'<p class="place">{escape(row["place"])}</p>'
            f'<p><b>Catch:</b> <span class="catch">{row["catch"]} kg</span></p>',
        )

    def _is_member(self, request: web.Request) -> bool:
        session = request.cookies.get("session", "")
        left = self._left.get(session, 0)
        if left:
            self._left[session] = left - 1
        return left > 0

    def _new(self, subject: str, count: int) -> str:
        return f"{draw(self._seed, f'members {subject}', count):016x}"


def _form_page(token: str) -> str:
    return (
        f'<form action="{_LOGIN}" method="post">'
        f'<input type="hidden" name="csrf_token" value="{token}">'
        '<input name="user"><input type="password" name="password">'
        "<button>Log in</button></form>"
    )


def _note(seed: int, number: int) -> dict[str, Any]:
    picks = Picks(draw(seed, "note", number))
    return {
        "id": number,
        "title": f"{picks.of(words.BEGINNINGS)}, {number}",
        "place": picks.of(words.PLACES),
        "catch": (5 + picks.below(400)) / 10,
    }
