"""The ads of one practice web: how many there are, and which round it is."""

from __future__ import annotations

from aiohttp import web

from longline.core.errors import BadOption
from longline.sandbox.sites.base import PracticeSite, Rows, Truth, missing
from longline.sandbox.sites.listings.rounds import ADS, PROPERTIES, Ad, Changes, changes, make_ads

_ROUNDS = (1, 2)


class Board:
    """The ads of all three sites, generated when the first is requested.

    Raises:
        BadOption: there is no such round, or there are fewer ads than properties.
    """

    def __init__(
        self, seed: int, *, properties: int = PROPERTIES, ads: int = ADS, first_round: int = 1
    ) -> None:
        self._seed = seed
        self._made: dict[str, dict[str, Ad]] = {}
        self.begin(properties=properties, ads=ads, first_round=first_round)

    @property
    def round(self) -> int:
        """1, or 2 after the change."""
        return self._round

    def begin(self, *, properties: int, ads: int, first_round: int = 1) -> None:
        """Start over with this many ads and properties."""
        if not 1 <= properties <= ads:
            raise BadOption("ads", "must be as many as the properties, or more")
        self._properties, self._ads = properties, ads
        self.move_to(first_round)

    def move_to(self, number: int) -> None:
        """Switch all sites to a round."""
        if number not in _ROUNDS:
            raise BadOption("round", "must be 1 or 2")
        self._round = number
        self._made = {}

    def on(self, site: str) -> list[Ad]:
        """Return the ads of a site as they are now, in the order of its lists."""
        return list(self._all().get(site, {}).values())

    def find(self, site: str, key: str) -> Ad | None:
        """Return an ad as it is now; None when there is none."""
        return self._all().get(site, {}).get(key)

    def truth(self, site: str) -> Rows:
        """Return the expected records of a site, and the property of each."""
        return [
            {
                "site": ad.site,
                "key": ad.key,
                "path": ad.path,
                "property": ad.property,
                **ad.values,
            }
            for ad in self.on(site)
        ]

    def changes(self) -> Changes:
        """Return what differs between the two rounds."""
        return changes(self._seed, self._properties, self._ads)

    def _all(self) -> dict[str, dict[str, Ad]]:
        if not self._made:
            for ad in make_ads(self._seed, self._properties, self._ads, self._round):
                self._made.setdefault(ad.site, {})[ad.key] = ad
        return self._made


class AdSite(PracticeSite):
    """A site that shows its ads of a board."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def truth(self) -> Truth:
        return {"ads": self._board.truth(self.name)}

    async def serve_ad(self, request: web.Request) -> web.Response:
        """Return the page of one ad."""
        ad = self._board.find(self.name, request.match_info["key"])
        return missing() if ad is None else self.show(ad, request.host)

    def show(self, ad: Ad, host: str, /) -> web.Response:
        """Return the page of an ad on a host."""
        raise NotImplementedError
