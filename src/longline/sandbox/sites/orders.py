"""Customers, their orders and the lines of each: parents and children of the practice API."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from longline.sandbox.draws import Picks, draw
from longline.sandbox.site import reply
from longline.sandbox.sites import ledgers, words
from longline.sandbox.sites.base import Rows, Truth

_CUSTOMERS = 9
_CLOSED = 5
"""The customer who is listed, and whose orders answer 404."""


class Orders:
    """`/rest/customers`, `/rest/customers/ID/orders`, `/rest/orders/ID/lines`."""

    def __init__(self, seed: int) -> None:
        customers = ledgers.make_rows(seed, "customer", _CUSTOMERS, ledgers.customer)
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
            web.get("/rest/customers", self._list),
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

    async def _list(self, _request: web.Request) -> web.Response:
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
