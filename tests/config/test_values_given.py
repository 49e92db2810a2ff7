# Pins wording on purpose.
"""What is wrong with a value of the command line, in our words."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from longline.config.validation_messages import describe_value_error


class _Wanted(BaseModel):
    model_config = {"extra": "forbid"}

    count: int = Field(5, ge=1)
    share: float = 0.5
    is_on: bool = False
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"count": "x"}, "must be a whole number, not 'x'"),
        ({"count": "1.5"}, "must be a whole number, not '1.5'"),
        ({"count": "0"}, "must be at least 1, not '0'"),
        ({"share": "much"}, "must be a number, not 'much'"),
        ({"is_on": "perhaps"}, "must be true or false, not 'perhaps'"),
        ({"kind": "c"}, "must be a or b, not 'c'"),
        ({"cuont": "5"}, "unknown key; did you mean `count`?"),
    ],
)
def test_a_value_that_does_not_fit_is_explained(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Wanted.model_validate(values)

    assert describe_value_error(caught.value.errors()[0], _Wanted).startswith(sentence)
