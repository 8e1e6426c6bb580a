"""What may be declared, from the schema that editors use."""

from __future__ import annotations

import json

from tests.docs.reference.http import kind
from tests.docs.reference.markdown import prose, table


def page() -> str:
    """A section for each object of a declaration."""
    from mqenterprise.topology.schema import enterprise_schema

    schema = json.loads(enterprise_schema())
    lines = [
        "# The declaration",
        "",
        "What a declared enterprise may contain. [The declared enterprise](../topology.md) explains how it is",
        "planned and applied. Editors",
        "check and complete it with `schemas/enterprise.schema.json`.",
        "",
        "## Sections",
        "",
        *table(
            ["section", "type", "meaning"],
            [[f"`{key}`", kind(one), prose(one.get("description", ""))] for key, one in schema["properties"].items()],
        ),
    ]
    for name, one in schema["$defs"].items():
        lines += ["", f"## {name}", "", prose(one.get("description", "")), ""]
        required = one.get("required", ())
        lines += table(
            ["key", "type", "default", "meaning"],
            [
                [
                    f"`{key}`",
                    kind(value),
                    "required" if key in required else _default(value),
                    prose(value.get("description", "")),
                ]
                for key, value in one.get("properties", {}).items()
            ],
        )
    return "\n".join(lines) + "\n"


def _default(value: dict[str, object]) -> str:
    default = value.get("default")
    return "" if default in (None, [], {}, "") else f"`{json.dumps(default)}`"
