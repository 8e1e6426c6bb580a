"""The management API, from its OpenAPI document."""

from __future__ import annotations

from typing import Any

from tests.docs.reference.commands import escaped
from tests.docs.reference.markdown import prose, table


def page() -> str:
    """Resources by subject, then the documents."""
    from qmnode.management.app import build_app

    document = build_app(None).openapi()  # type: ignore[arg-type]  # routes and documents need no node
    lines = [
        "# The management API",
        "",
        "A node serves it on the Unix socket `management.socket`, and over TCP with TLS if `management.listen` is set.",
        "[The management API and metrics](../management.md) shows calls with curl. A running node has the same as",
        "OpenAPI under `/openapi.json`.",
        "Errors are problem documents (`application/problem+json`, RFC 9457) with the MQ_ERROR code in `code`.",
        "",
    ]
    for tag in document["tags"]:
        lines += ["", f"## {tag['name'].capitalize()}", "", tag["description"], ""]
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation.get("tags", ()):
                    lines += _operation(method, path, operation)
    lines += ["", "## Documents", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += ["", f"### {name}", "", prose(schema.get("description", "")), ""]
        if "enum" in schema:
            lines.append("One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".")
        elif schema.get("properties"):
            required = schema.get("required", ())
            rows = [
                [f"`{key}`", kind(one), "yes" if key in required else "", prose(one.get("description", ""))]
                for key, one in schema["properties"].items()
            ]
            lines += table(["key", "type", "always", "meaning"], rows)
    return "\n".join(lines) + "\n"


def _operation(method: str, path: str, operation: dict[str, Any]) -> list[str]:
    lines = ["", f"### {method.upper()} {path.replace('{', '').replace('}', '')} {{ #{operation['operationId']} }}", ""]
    lines += [
        f"**{operation['summary']}.** {prose(operation.get('description', ''))}",
        "",
        f"`{method.upper()} {path}`",
        "",
    ]
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        lines += ["Body: " + ", ".join(kind(one.get("schema", {})) for one in body.values()) + ".", ""]
    rows = [
        [f"`{one['name']}`", one["in"], kind(one["schema"]), escaped(one.get("description", ""))]
        for one in operation.get("parameters", ())
    ]
    lines += [*table(["parameter", "in", "type", "meaning"], rows), ""] if rows else []
    answers = []
    for code, answer in operation["responses"].items():
        kinds = [kind(one.get("schema", {})) for one in answer.get("content", {}).values()]
        if code.startswith("2") or code not in ("default", "400", "401", "403", "422", "503"):
            answers.append(
                f"{code} {answer['description']}" + (f" ({', '.join(kinds)})" if kinds and code[0] == "2" else "")
            )
    return [*lines, "Answers: " + "; ".join(answers) + ".", ""]


def kind(schema: dict[str, Any]) -> str:
    """The type of a value, with a link to the document if it is one."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type") or "any")
