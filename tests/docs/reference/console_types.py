"""The types of a node's documents for the console's pages, from the documents of the management API.

``python -m tests.docs.reference.console_types`` writes them; a test compares the file. The console's API hands on what
the nodes answer, with the machine where it joins the answers of several.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qmnode.management.documents import ConnectionDocument, NodeDocument, QueueDocument, QuotaDocument
from qmnode.management.message_documents import MessageDocument
from qmnode.management.node_routes import Keys
from qmnode.management.operation_routes import FailureGroup, HistoryDocument, JobDocument, JobLog, NewJob
from qmnode.management.queue_documents import AccessDocument
from qmnode.management.rotation_routes import Rotation

if TYPE_CHECKING:
    from pydantic import BaseModel

FILE: Final = Path(__file__).resolve().parents[3] / "mqenterprise/console/web/src/api/documents.ts"
_ANSWERS: Final[tuple[type[BaseModel], ...]] = (
    QueueDocument, MessageDocument, JobDocument, JobLog, FailureGroup, HistoryDocument, Keys, Rotation, AccessDocument,
    NodeDocument, QuotaDocument, ConnectionDocument,
)  # fmt: skip
_NAMES: Final = {
    "QueueDocument": "Queue",
    "QuotaDocument": "Quotas",
    "ConnectionDocument": "Connection",
    "MessageDocument": "Message",
    "JobDocument": "Job",
    "LogEntry": "JobLogEntry",
    "HistoryDocument": "History",
    "KeyDocument": "KeyFacts",
    "CertificateDocument": "CertificateFacts",
    "StepDocument": "RotationStep",
    "ChangeDocument": "RotationChange",
    "RunDocument": "RotationRun",
    "PlanDocument": "RotationPlan",
    "AccessDocument": "Access",
    "AccessRuleDocument": "AccessRule",
}
"""The names of types where they are not those of the documents."""
_OF_MACHINES: Final = frozenset({"Queue", "Job", "FailureGroup"})
"""Types of documents to which the console's API adds the machine."""
_WIDTH: Final = 121
"""Of a line with its end, as the console's formatter breaks them."""
_BY_TYPE: Final = {"integer": "number", "number": "number", "boolean": "boolean", "string": "string", "null": "null"}


def text() -> str:
    """The whole file."""
    made: dict[str, str] = {}
    for document in _ANSWERS:
        _enter(document.model_json_schema(mode="serialization"), made, is_request=False)
    _enter(NewJob.model_json_schema(), made, is_request=True)
    head = "// Written by python -m tests.docs.reference.console_types from the documents of the management API.\n"
    return head + "\n" + "\n".join(made[name] for name in sorted(made))


def _enter(schema: dict[str, Any], made: dict[str, str], *, is_request: bool) -> None:
    """Enter the type of a schema, and those that it refers to."""
    for one in (schema, *schema.get("$defs", {}).values()):
        name = _NAMES.get(one["title"], one["title"])
        if "enum" in one:
            made[name] = f"export type {name} = {_type(one)};\n"
            if len(made[name]) > _WIDTH:
                made[name] = f"export type {name} =\n  | {_type(one).replace(' | ', chr(10) + '  | ')};\n"
            continue
        properties = ({"machine": {"type": "string"}} if name in _OF_MACHINES else {}) | one["properties"]
        lines = [
            f"  readonly {key}{'?' if is_request and key not in one.get('required', ()) else ''}: {_type(value)};\n"
            for key, value in properties.items()
        ]
        made[name] = f"export interface {name} {{\n{''.join(lines)}}}\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _NAMES.get(name, name)
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(map(_type, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"readonly {_type(schema['items'])}[]"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"Readonly<Record<string, {_type(values) if isinstance(values, dict) else 'unknown'}>>"
    return _BY_TYPE[schema["type"]] if "type" in schema else "unknown"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
