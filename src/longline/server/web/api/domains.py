"""Domains: their rate limits and circuit breakers."""

from __future__ import annotations

from longline.limits.learning import Learned, displayed_rate, limit_of
from longline.server.models import Breaker, BreakerReset, Domain, Page, RateLimit
from longline.server.web.api.requests import CursorText, Limit, api_router, page_in_memory
from longline.server.web.context import Home
from longline.services.domains import Domain as KnownDomain
from longline.services.domains import read_domain, read_domains, reset_breaker
from longline.wiring import open_domain_states

router = api_router("domains")

_MOST = 20_000  # domains without a limit or breaker that are read


@router.get("/domains")
async def list_domains(web: Home, limit: Limit = 100, cursor: CursorText = None) -> Page[Domain]:
    """List domains by name."""
    now = web.clock.now()
    async with open_domain_states(web.settings, web.clock, web.store) as states:
        known = await read_domains(web.store, states, now, most=_MOST)
    page = page_in_memory(known.values(), limit, cursor, lambda one: (one.name,))
    return Page(items=[_domain_of(one) for one in page.items], next=page.next)


@router.get("/domains/{domain}")
async def get_domain(web: Home, domain: str) -> Domain:
    """Return what is known about a domain, given as host or host:port."""
    async with open_domain_states(web.settings, web.clock, web.store) as states:
        return _domain_of(await read_domain(web.store, states, web.clock.now(), domain))


@router.post("/domains/{domain}/reset")
async def reset_domain(web: Home, domain: str) -> BreakerReset:
    """Close the circuit breaker of a domain; its deferred items become due."""
    async with open_domain_states(web.settings, web.clock, web.store) as states:
        _, due = await reset_breaker(web.store, states, web.clock, domain)
        found = await read_domain(web.store, states, web.clock.now(), domain)
    return BreakerReset(domain=_domain_of(found), due_items=due)


# ---------------- Values


def _domain_of(known: KnownDomain) -> Domain:
    breaker = known.breaker
    return Domain(
        domain=known.name,
        limit=None if known.limit is None else _limit_of(known.limit),
        breaker=None if breaker is None else Breaker.model_validate(breaker),
        problems=known.problems,
    )


def _limit_of(known: Learned) -> RateLimit:
    values = {
        "rate": displayed_rate(known),
        "burst": limit_of(known).capacity,
        "origin": known.origin,
        "refusals": known.refusals,
        "changed_at": known.changed_at or None,
    }
    return RateLimit.model_validate(values)
