"""What the data of a template must satisfy: strict on the essentials, lenient on the rest."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StringConstraints


def _check_workflow(workflow: dict[str, Any]) -> dict[str, Any]:
    # Checked, not modelled: a model would put the keys of what people made in another order.
    for part, kind in (("nodes", list), ("connections", dict)):
        if not isinstance(workflow.get(part), kind):
            message = f"a workflow's {part} are a {kind.__name__}"
            raise ValueError(message)  # noqa: TRY004  # pydantic turns no TypeError into a finding
    return workflow


class N8nRecord(BaseModel):
    """One template. A field that is not named here is taken as it comes."""

    model_config = ConfigDict(extra="allow")

    id: Annotated[StrictInt, Field(gt=0)]
    title: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    url: str
    workflow: Annotated[dict[str, Any], AfterValidator(_check_workflow)] | None
