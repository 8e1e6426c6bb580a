"""Types of settings that are written with a unit or as a number."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from qmnode.settings.sizes import UNLIMITED, quota_value, size_value

Bytes = Annotated[int, BeforeValidator(size_value)]
"""A number of bytes, or a size with a unit: ``256MB``."""
Quota = Annotated[
    int,
    Field(ge=0, le=UNLIMITED),
    BeforeValidator(
        quota_value,
        json_schema_input_type=Annotated[int, Field(ge=0, le=UNLIMITED)]
        | Annotated[str, Field(pattern=r"^ *([Nn][Oo][Nn][Ee]|[0-9]+(\.[0-9]+)? *([KMGTkmgt]([Ii]?[Bb])?)?) *$")]
        | None,
    ),
]
"""A number of KB, a size with a unit (``1GB``), or ``none``, as is an empty value."""
