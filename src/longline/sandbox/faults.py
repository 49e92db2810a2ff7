"""Which addresses misbehave, how, and for how long: decided by the seed, then forgotten."""

from __future__ import annotations

from enum import StrEnum

from longline.sandbox.draws import Picks, chance, draw


class Fault(StrEnum):
    """One way in which a web site fails."""

    SERVER_ERROR = "500"
    BAD_GATEWAY = "502"
    UNAVAILABLE = "503"
    DROPPED = "dropped"
    CUT = "cut"
    DRIP = "drip"
    WRONG_CHARSET = "wrong_charset"


_LOT = (
    *(Fault.SERVER_ERROR,) * 28,
    *(Fault.BAD_GATEWAY,) * 20,
    *(Fault.DROPPED,) * 24,
    *(Fault.CUT,) * 22,
    *(Fault.UNAVAILABLE,) * 4,
    *(Fault.DRIP,) * 2,  # each costs a client its whole deadline, so they are the rarest
)
_HTML_LOT = (*_LOT, *(Fault.WRONG_CHARSET,) * 15)
_MOST = 2  # a client that tries three times always gets through


class FaultPlan:
    """Tells for each request whether and how it goes wrong.

    A share of all addresses is faulty; such an address fails on its first one or two requests,
    each time in the same way, and is sound ever after.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._seed = seed
        self._left: dict[str, int] = {}

    def next(self, address: str, *, is_html: bool = False) -> Fault | None:
        """Return what goes wrong with this request, if anything, and count it."""
        fault = self.fault_of(address, is_html=is_html)
        if fault is None:
            return None
        left = self._left.get(address, self.length_of(address))
        if not left:
            return None
        self._left[address] = left - 1
        return fault

    def fault_of(self, address: str, *, is_html: bool = False) -> Fault | None:
        """Return how this address misbehaves at first; None when it never does."""
        if chance(self._seed, "faulty", address) >= self._share:
            return None
        return Picks(draw(self._seed, "fault", address)).of(_HTML_LOT if is_html else _LOT)

    def length_of(self, address: str) -> int:
        """Return how many requests a faulty address spoils."""
        return 1 + Picks(draw(self._seed, "failures", address)).below(_MOST)
