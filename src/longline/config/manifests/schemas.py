"""JSON Schemas of what users write, for editors that complete and check it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from longline.config.job_spec import JobSpec
from longline.config.manifests.kinds import KEY, KINDS, model_of
from longline.config.settings import Settings, file_model

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SHORT = {"type": ["string", "number", "boolean", "array"]}
JOB, SETTINGS = "job", "settings"
NAMES = (*KINDS, JOB, SETTINGS)


def schema_of(name: str) -> dict[str, Any]:
    """Return the schema of a kind of manifest, of a job file, or of the settings file.

    Raises:
        BadOption: there is none of this name.
    """
    if name == SETTINGS:
        return _named(name, _schema(file_model(Settings)))
    if name == JOB:
        schema = _schema(JobSpec)
        schema["properties"].pop(KEY, None)  # a job file names its manifest as its source
        return _named(name, schema)
    schema = _schema(model_of(name))
    schema["properties"] = {**schema["properties"], KEY: {"const": name}}
    schema["required"] = [KEY, *(one for one in schema.get("required", []) if one != KEY)]
    return _named(name, schema)


class _WithShortForms(GenerateJsonSchema):
    """Takes the short forms, too, that our validators make whole ones of: `title: h1`."""

    def function_before_schema(
        self, schema: core_schema.BeforeValidatorFunctionSchema
    ) -> JsonSchemaValue:
        whole = super().function_before_schema(schema)
        function = schema["function"]["function"]
        if "json_schema_input_schema" in schema or _is_of_model(function):
            return whole
        # A method is told the whole of a field, and may take anything below it for something.
        is_open = hasattr(function, "__self__") or whole.get("type") == "array"
        return {"anyOf": [whole, {} if is_open else _SHORT]}


def _is_of_model(function: Any) -> bool:
    """Return whether a function looks at a whole model, which stays what it is."""
    decorators = getattr(getattr(function, "__self__", None), "__pydantic_decorators__", None)
    return decorators is not None and function.__name__ in decorators.model_validators


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True, schema_generator=_WithShortForms)


def _named(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": DIALECT, **schema, "title": f"longline {name}"}
