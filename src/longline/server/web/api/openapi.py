"""The OpenAPI document: authentication, errors and examples of every operation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from longline.server import models
from longline.server.models import Problem
from longline.server.web.access import openapi_security
from longline.server.web.api.requests import IDEMPOTENCY_KEY, NOT_REPEATABLE

_PROBLEM = "application/problem+json"
_ERRORS = {
    "400": "The request is malformed.",
    "401": "The token is missing, or not valid.",
    "403": "The role of the token does not allow this.",
    "404": "It does not exist.",
    "409": "It does not fit the present state.",
    "413": "The body is too large.",
    "421": "The server does not know this host.",
    "422": "A parameter or a field of the body is invalid.",
    "429": "Too many failed logins from this address.",
    "503": "The database does not respond.",
}
_KEY_PARAMETER = {
    "name": IDEMPOTENCY_KEY,
    "in": "header",
    "required": False,
    "description": "A repeated request with the same key gets the first response, for a day.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    "example": "3f0c1f5e-2b1d-4f44-9a57-1d6f0d7f7a11",
}
_METHODS = ("get", "post", "put", "patch", "delete")


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an app; it is made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        _finish(document)
        app.openapi_schema = document
    return app.openapi_schema


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path, method and description of each operation."""
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                yield path, method, methods[method]


def _finish(document: dict[str, Any]) -> None:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    _restore_examples(schemas)
    components["securitySchemes"] = openapi_security()
    document["security"] = [{"token": []}]
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    for path, method, operation in operations(document):
        if method == "post" and path not in NOT_REPEATABLE:
            operation.setdefault("parameters", []).append(_KEY_PARAMETER)
        for status, text in _ERRORS.items():
            example = {"type": "about:blank", "status": int(status), "detail": text}
            content = {**problem, "example": {**example, "title": text.rstrip(".")}}
            operation["responses"][status] = {"description": text, "content": {_PROBLEM: content}}
        bodies = [operation["responses"], {"body": operation.get("requestBody", {})}]
        for status, response in (pair for body in bodies for pair in body.items()):
            content = response.get("content", {}).get("application/json")
            if content is not None and not status.startswith(("4", "5")):
                content.setdefault("example", example_of(content["schema"], schemas))


def _restore_examples(schemas: dict[str, Any]) -> None:
    """Give the schemas the examples of their models again: FastAPI drops what is null in them."""
    for name, schema in schemas.items():
        model = getattr(models, name, None)
        if model is not None and "examples" in schema:
            schema["examples"] = model.model_config["json_schema_extra"]["examples"]


def example_of(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """Return an example of a schema, made of those of its models."""
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "examples" in schema:
        return schema["examples"][0]
    if "anyOf" in schema:  # the first one, or null
        return example_of(schema["anyOf"][0], schemas)
    if schema.get("type") == "array":
        return [example_of(schema["items"], schemas)]
    if schema.get("type") == "object":
        return {
            name: example_of(one, schemas) for name, one in schema.get("properties", {}).items()
        }
    return None
