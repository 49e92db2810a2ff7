"""A manifest of an API: endpoints by name, each a list of records or a part of one."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from longline.config.hosts import Hosts
from longline.config.manifests.addresses import check_address, check_with_defaults
from longline.config.manifests.api_checks import check_endpoints, wrong_at
from longline.config.manifests.api_endpoints import Endpoint
from longline.config.manifests.base import Manifest, Parameter, Transport
from longline.config.manifests.templates import names_in
from longline.config.written import wrong

RESERVED = frozenset({"parent", "since"})
"""Names in braces that stand for something else than a parameter."""

RENEWABLE = frozenset({"oauth2", "login"})
"""Kinds of authentication whose proof is obtained, and may be obtained again."""


class ApiManifest(Manifest):
    """A source that collects from an API which answers in JSON."""

    manifest: Literal["api"] = "api"
    base_url: str
    """Where the paths begin: https://api.example.com/v1."""
    hosts: Hosts = ()
    """Other hosts that addresses of next pages may lead to."""
    endpoints: dict[str, Endpoint] = Field(min_length=1)
    may_be_empty: bool = False
    """Whether finding no record at all is fine; otherwise it is taken for a failure.

    A run that only asks for what has changed since the last one may always find nothing.
    """

    @field_validator("base_url")
    @classmethod
    def _an_address(cls, base_url: str) -> str:
        text = base_url.strip()
        if not text.startswith(("http://", "https://", "{")):
            raise wrong("base_url is an address such as https://api.example.com/v1")
        if "?" in text or "#" in text:
            raise wrong("base_url has no ? and no #: write parameters under query")
        return check_address(text)

    @field_validator("transport")
    @classmethod
    def _over_http(cls, transport: Transport) -> Transport:
        if transport != "http":
            raise wrong("an API is asked over http; browser and auto are for manifest: html")
        return transport

    @field_validator("parameters")
    @classmethod
    def _free_names(cls, parameters: dict[str, Parameter]) -> dict[str, Parameter]:
        for name in sorted(RESERVED & parameters.keys()):
            raise wrong(f"the parameter {name} needs another name: {{{name}}} stands for another")
        return parameters

    @field_validator("endpoints")
    @classmethod
    def _plain_endpoints(cls, endpoints: dict[str, Endpoint]) -> dict[str, Endpoint]:
        for name in endpoints:
            if not name.isidentifier():
                raise wrong(f"the endpoint {name!r} needs a name of letters, digits and _")
        return endpoints

    @model_validator(mode="after")
    def _sound(self) -> Self:
        for name in names_in(self.base_url):
            if name not in self.parameters:
                problem = f"{{{name}}} is no parameter; {self._known()}"
                raise wrong_at(("base_url",), problem)
        check_with_defaults(self.base_url, self.parameters)
        check_endpoints(self.endpoints, self.parameters)
        self._check_rates()
        self._check_renewals()
        return self

    def _check_rates(self) -> None:
        for name, endpoint in self.endpoints.items():
            own, whole = endpoint.rate, self.rate
            if own and isinstance(whole, float) and own > whole:
                problem = f"it is above that of the source, {whole:g}, and would change nothing"
                raise wrong_at(("endpoints", name, "rate"), problem)

    def _check_renewals(self) -> None:
        kind = self.auth.kind if self.auth else None
        for name, endpoint in self.endpoints.items():
            for number, rule in enumerate(endpoint.handlers):
                if rule.do == "refresh" and kind not in RENEWABLE:
                    problem = "refresh needs auth of a kind that can be renewed: oauth2 or login"
                    raise wrong_at(("endpoints", name, "handlers", number, "do"), problem)

    def _known(self) -> str:
        return f"parameters are {', '.join(self.parameters) or 'not declared here'}"
