"""Sessions: cookies, a proxy and headers that belong together, and end together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longline.config.proxies import SessionSpec

_MOST_SESSIONS = 5000  # open ones of a process; the least recently used one ends first
_ERROR, _SUCCESS = 1.0, 0.5  # what they add to, and take from, the errors of a session
_FOR_ALL = "all"


@dataclass(slots=True, eq=False)
class Session:
    """One session.

    `identity` has its cookies; IdentityMiddleware makes it. `proxy` is the address of its proxy,
    from the first request on. Once it has ended, no further request uses it.
    """

    name: str
    headers: Mapping[str, str] = field(default_factory=dict)
    identity: Any = None
    proxy: str | None = None
    uses: int = 0
    errors: float = 0.0
    in_flight: int = 0
    has_ended: bool = False


class SessionPool:
    """The sessions of one job in this process.

    A request names its session, or belongs to an item; `spec` says what it gets then.
    """

    def __init__(self, spec: SessionSpec) -> None:
        self._spec = spec
        self._current: OrderedDict[str, Session] = OrderedDict()
        self._by_name: dict[str, Session] = {}
        self._made = 0

    def take(self, domain: str, scope: str | None, name: str | None) -> Session:
        """Return the session of a request; `release` is called after it."""
        key = self._key(domain, scope, name)
        session = self._of_key(key)
        session.uses += 1
        session.in_flight += 1
        self._by_name[session.name] = session
        is_counted = key.startswith("uses/")
        if is_counted and session.uses >= self._spec.uses:
            del self._current[key]  # this is its last use
        return session

    def release(self, session: Session) -> None:
        """Note that a request of a session is over."""
        session.in_flight -= 1
        if not session.in_flight:
            self._by_name.pop(session.name, None)

    def find(self, name: str | None) -> Session | None:
        """Return the session of a request inside the chain.

        Logins and robots.txt name none: with `per: login`, they belong to the session of all.
        """
        if name is not None:
            return self._by_name.get(name)
        return self._of_key(_FOR_ALL) if self._spec.per == "login" else None

    def record(self, session: Session, *, has_failed: bool) -> None:
        """Record a response or a failure; too many failures end the session."""
        change = _ERROR if has_failed else -_SUCCESS
        session.errors = max(0.0, session.errors + change)
        session.has_ended = session.has_ended or session.errors >= self._spec.errors

    def _key(self, domain: str, scope: str | None, name: str | None) -> str:
        if name is not None:
            return f"named/{name}"
        if self._spec.per == "item" and scope is not None:
            return f"item/{scope}"
        if self._spec.per != "uses":
            return _FOR_ALL
        prefix = f"uses/{domain}/"
        keys = [key for key in self._current if key.startswith(prefix)]
        # The one that was not used for longest comes first.
        return keys[0] if len(keys) >= self._spec.size else f"{prefix}{self._made}"

    def _of_key(self, key: str) -> Session:
        session = self._current.get(key)
        if session is None or session.has_ended:
            self._made += 1
            session = Session(f"{key}#{self._made}", _of(self._spec.headers, self._made))
            self._current[key] = session
        self._current.move_to_end(key)
        while len(self._current) > _MOST_SESSIONS:
            self._current.popitem(last=False)
        return session


def _of(several: Sequence[Mapping[str, str]], number: int) -> Mapping[str, str]:
    return several[number % len(several)] if several else {}
