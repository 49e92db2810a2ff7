"""What all kinds of authentication have in common: the hosts they are for, and references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field, field_validator
from yarl import URL

from longline.config.hosts import Hosts, Reach, host_of, is_private_way
from longline.config.secrets import SecretRef
from longline.config.written import Written, wrong

_NO_HOSTS = "name the hosts that may see the secret, for example hosts: [api.example.com]"


class Proof(Written):
    """A way to prove who we are, and the hosts that may see the proof."""

    hosts: Hosts = Field(default=(), validate_default=True)
    """Hosts that may see the secret: api.example.com, or *.example.com for all below it."""
    allow_http: bool = False
    """Send it unencrypted, too. Without it only https is used, and http to this machine."""

    @field_validator("hosts")
    @classmethod
    def _name_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        if not hosts:
            raise wrong(_NO_HOSTS)
        return hosts

    @property
    def reach(self) -> Reach:
        """Where the secret may go."""
        return Reach(self.hosts, self.allow_http)

    def references(self) -> Iterator[SecretRef]:
        """Yield every secret that is referred to."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            for one in value.values() if isinstance(value, Mapping) else (value,):
                if isinstance(one, SecretRef):
                    yield one

    def check(self) -> None:
        """See before the first request that every secret can be read.

        Raises:
            UnknownSecret: one cannot.
        """
        for reference in self.references():
            reference.check()


def host_in(address: object) -> str | None:
    """Return the host of an address as a pattern; None when there is none."""
    try:
        return host_of(URL(address)) or None if isinstance(address, str) else None
    except ValueError:
        return None


def check_address(name: str, address: str, *, allow_http: bool) -> None:
    """See that a secret may be sent to this address at all.

    Raises:
        PydanticCustomError: it is no address, has a user in it, or is not encrypted.
    """
    url = URL(address) if host_in(address) else URL()
    if url.scheme not in {"http", "https"} or url.user or url.password:
        raise wrong(f"{name}: write an address such as https://example.com/path, without a user")
    if not allow_http and not is_private_way(url):
        raise wrong(f"{name}: must be https, or say allow_http: true")
