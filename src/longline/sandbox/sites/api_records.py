"""The made-up records behind the practice API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from longline.sandbox.seeded import Picks, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import Rows, Truth
from longline.sandbox.templates.routes import reply
from longline.sandbox.templates.words import FIRST_NAMES, LAST_NAMES

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_HOURS = 5000

Make = Callable[[int, Picks], dict[str, Any]]


def make_rows(seed: int, subject: str, count: int, make: Make) -> Rows:
    """Return this many records, numbered from 1."""
    return [
        {"id": number, **make(number, Picks(draw(seed, subject, number)))}
        for number in range(1, count + 1)
    ]


def book(_number: int, picks: Picks) -> dict[str, Any]:
    """Return a book; its author is nested."""
    return {
        "title": f"{picks.of(words.BEGINNINGS)} and {picks.of(words.ENDINGS)}",
        "author": {"name": person(picks), "born": 1900 + picks.below(90)},
        "pages": 40 + picks.below(700),
        "tags": list(words.TAGS[: picks.below(3)]),
    }


def station(_number: int, picks: Picks) -> dict[str, Any]:
    """Return a weather station."""
    return {"place": picks.of(words.PLACES), "height": picks.below(900)}


def reading(number: int, picks: Picks) -> dict[str, Any]:
    """Return what a station measured; sometimes nothing."""
    taken = _BEGAN + timedelta(hours=number)
    celsius = (picks.below(400) - 100) / 10 if picks.below(10) else None
    return {"taken": taken.isoformat(), "celsius": celsius}


def invoice(number: int, picks: Picks) -> dict[str, Any]:
    """Return an invoice; amounts are texts, as in many APIs."""
    return {"number": f"R-{number:04d}", "amount": f"{picks.below(90000) / 100:.2f}"}


def part(number: int, picks: Picks) -> dict[str, Any]:
    """Return a spare part."""
    return {"sku": f"S{number:03d}", "name": f"{picks.of(words.LOOKS)} {picks.of(words.SERIES)}"}


def customer(number: int, picks: Picks) -> dict[str, Any]:
    """Return a customer; the orders are requested separately."""
    return {"name": person(picks), "city": picks.of(words.PLACES), "orders": (number * 7) % 4}


def change(_number: int, picks: Picks) -> dict[str, Any]:
    """Return a record that was changed at a known time."""
    time = _BEGAN + timedelta(hours=picks.below(_HOURS), seconds=picks.below(3600))
    return {"title": picks.of(words.BEGINNINGS), "updated_at": written(time)}


def person(picks: Picks) -> str:
    """Return a name."""
    return f"{picks.of(FIRST_NAMES)} {picks.of(LAST_NAMES)}"


def written(time: datetime) -> str:
    """Return a time as the API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


# ---------------- Customers, their orders and the lines of each: parents and children of the

_CUSTOMERS = 9
_CLOSED = 5
"""The customer who is listed, and whose orders return 404."""


class Orders:
    """`/rest/customers`, `/rest/customers/ID/orders`, `/rest/orders/ID/lines`."""

    def __init__(self, seed: int) -> None:
        customers = make_rows(seed, "customer", _CUSTOMERS, customer)
        self._orders: dict[int, Rows] = {
            row["id"]: [_order(seed, row["id"], n) for n in range(row.pop("orders"))]
            for row in customers
        }
        self._customers = customers
        self._lines: dict[str, Rows] = {
            order["id"]: [_line(seed, order["id"], n) for n in range(1, order["lines"] + 1)]
            for orders in self._orders.values()
            for order in orders
        }

    def routes(self) -> list[web.RouteDef]:
        """Return the addresses and who answers there."""
        return [
            web.get("/rest/customers", self._list_customers),
            web.get(r"/rest/customers/{id:\d+}/orders", self._of_customer),
            web.get(r"/rest/orders/{id}/lines", self._of_order),
        ]

    def truth(self) -> Truth:
        """Return customers, orders and lines; children know their parent's id."""
        orders = [
            {"customer_id": customer, **order}
            for customer, orders in self._orders.items()
            if customer != _CLOSED
            for order in orders
        ]
        lines = [
            {"order_id": order["id"], **line}
            for order in orders
            for line in self._lines[order["id"]]
        ]
        return {"customers": self._customers, "orders": orders, "lines": lines}

    async def _list_customers(self, _request: web.Request) -> web.Response:
        return reply({"customers": self._customers})

    async def _of_customer(self, request: web.Request) -> web.Response:
        number = int(request.match_info["id"])
        if number == _CLOSED or number not in self._orders:
            return reply({"error": "there is no such customer"}, status=404)
        return reply({"orders": self._orders[number]})

    async def _of_order(self, request: web.Request) -> web.Response:
        lines = self._lines.get(request.match_info["id"])
        if lines is None:
            return reply({"error": "there is no such order"}, status=404)
        return reply({"lines": lines})


def _order(seed: int, customer: int, number: int) -> dict[str, Any]:
    picks = Picks(draw(seed, f"order of {customer}", number))
    return {
        "id": f"{customer}-{number + 1}",
        "state": picks.of(("open", "sent")),
        "lines": 1 + picks.below(3),
    }


def _line(seed: int, order: str, number: int) -> dict[str, Any]:
    picks = Picks(draw(seed, f"line of {order}", number))
    return {
        "id": f"{order}-{number}",
        "product": f"{picks.of(words.LOOKS)} {picks.of(words.SERIES)}",
        "count": 1 + picks.below(9),
    }
