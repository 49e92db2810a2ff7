"""JSON Schemas of manifests, job files and settings, for editors that complete and check them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from longline.config.job_spec import JobSpec
from longline.config.settings import Settings, file_model
from longline.sources.manifest import KIND, KINDS, manifest_model

DIALECT = "https://json-schema.org/draft/2020-12/schema"
JOB, SETTINGS = "job", "settings"
SCHEMA_NAMES = (*KINDS, JOB, SETTINGS)
_SHORT_FORM = {"type": ["string", "number", "boolean", "array"]}


def schema_of(name: str) -> dict[str, Any]:
    """Return the schema of a kind of manifest, of job files, or of the settings file.

    Raises:
        BadOption: there is no schema of this name.
    """
    if name == SETTINGS:
        schema = _generate(file_model(Settings))
    elif name == JOB:
        schema = _generate(JobSpec)
        schema["properties"].pop(KIND, None)  # a job file names its manifest as its source
    else:
        schema = _generate(manifest_model(name))
        schema["properties"] = {**schema["properties"], KIND: {"const": name}}
        schema["required"] = [KIND, *(one for one in schema.get("required", []) if one != KIND)]
    return {"$schema": DIALECT, **schema, "title": f"longline {name}"}


def _generate(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True, schema_generator=_ShortFormSchema)


class _ShortFormSchema(GenerateJsonSchema):
    """Also accepts the short forms that validators expand, such as `title: h1`."""

    def function_before_schema(
        self, schema: core_schema.BeforeValidatorFunctionSchema
    ) -> JsonSchemaValue:
        full = super().function_before_schema(schema)
        function = schema["function"]["function"]
        if "json_schema_input_schema" in schema or _is_model_validator(function):
            return full
        # A method validates a whole field and may accept anything inside it.
        is_open = hasattr(function, "__self__") or full.get("type") == "array"
        return {"anyOf": [full, {} if is_open else _SHORT_FORM]}


def _is_model_validator(function: Any) -> bool:
    decorators = getattr(getattr(function, "__self__", None), "__pydantic_decorators__", None)
    return decorators is not None and function.__name__ in decorators.model_validators
