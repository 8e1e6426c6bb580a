"""The JSON Schema of the declaration, for editors: ``python -m mqenterprise.topology.schema`` prints it."""

import json
import sys

from mqenterprise.topology.declaration import Declaration


def enterprise_schema() -> str:
    """The text of ``schemas/enterprise.schema.json``."""
    schema = Declaration.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "A declared Message Queuing enterprise"
    # One file of several need not have the settings, and may name others.
    schema["required"] = []
    schema["properties"]["include"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Other files of the declaration, relative to this one; * matches many",
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(enterprise_schema())
