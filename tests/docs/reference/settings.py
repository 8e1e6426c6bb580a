"""Every setting, from its model: name, default, range and meaning."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
from pydantic_core import PydanticUndefined

from tests.docs.reference.markdown import prose, table

if TYPE_CHECKING:
    from collections.abc import Iterator


def page() -> str:
    """The settings of a node, of the directory and of key rotation."""
    from mqenterprise.directory.settings import DirectorySettings
    from mqenterprise.keys.settings import KeySettings
    from qmnode.settings.node import NodeSettings

    lines = [
        "# Settings",
        "",
        "Settings are YAML. A name with a dot is a key within a section: `storage.sync` is `sync` under",
        "`storage:`. Every setting of a node",
        "can also be given by an environment variable: `QMNODE_STORAGE__SYNC`. A node reads its file again on",
        "SIGHUP, and reports in its",
        "log which changes wait for the next start. Durations are in seconds unless the meaning says otherwise.",
        "",
        "## node.yaml",
        "",
    ]
    lines += _of(NodeSettings)
    lines += [
        "",
        "## directory.yaml",
        "",
        "How the directory is reached: `mqenterprise --directory`, and `directory.settings` of a node.",
        "",
    ]
    lines += _of(DirectorySettings)
    lines += [
        "",
        "## keys.yaml",
        "",
        "Where the keys of nodes are, for `mqenterprise keys --keys`. See [Keys and certificates](../keys.md).",
        "",
    ]
    lines += _of(KeySettings)
    return "\n".join(lines) + "\n"


def _of(model: type[pydantic.BaseModel]) -> list[str]:
    plain = [one for one in _rows(model) if one]
    lines = table(["setting", "default", "range", "meaning"], plain)
    for name, nested in _sections(model, ""):
        lines += ["", f"### {name}", "", prose(inspect.getdoc(nested)), ""]
        lines += table(["setting", "default", "range", "meaning"], _rows(nested, f"{name}."))
    return lines


def _sections(model: type[pydantic.BaseModel], prefix: str) -> Iterator[tuple[str, type[pydantic.BaseModel]]]:
    for name, field in model.model_fields.items():
        if inspect.isclass(field.annotation) and issubclass(field.annotation, pydantic.BaseModel):
            yield prefix + name, field.annotation
            yield from _sections(field.annotation, f"{prefix}{name}.")


def _rows(model: type[pydantic.BaseModel], prefix: str = "") -> Iterator[list[str]]:
    meanings = _meanings(model)
    for name, field in model.model_fields.items():
        if inspect.isclass(field.annotation) and issubclass(field.annotation, pydantic.BaseModel):
            continue
        meaning = prose(meanings.get(name)) or field.description or f"{name.replace('_', ' ').capitalize()}."
        yield [f"`{prefix}{name}`", _default(field), _range(field), meaning]


def _meanings(model: type[pydantic.BaseModel]) -> dict[str, str]:
    """The texts below the fields, with those of the classes that the model extends."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if not kind.__module__.startswith(("qmnode", "mqenterprise")):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, after in zip(body.body, body.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if (
                isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                found[field.target.id] = inspect.cleandoc(after.value.value)
    return found


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined or value in ("", (), {}, []):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, pydantic.BaseModel):
        return "see its fields"
    if isinstance(value, Path):
        return f"`{value}`"
    if isinstance(value, tuple | list | set | frozenset):
        return ", ".join(f"`{getattr(one, 'value', one)}`" for one in value)
    shown = getattr(value, "value", value)
    return f"`{_number(shown) if isinstance(shown, int) else shown}`"


def _number(value: int) -> str:
    return f"{value:,}" if abs(value) >= 10_000 else str(value)


def _range(field: Any) -> str:
    limits = {
        name: getattr(rule, name) for rule in field.metadata for name in ("ge", "gt", "le", "lt") if hasattr(rule, name)
    }
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    values = getattr(field.annotation, "__args__", ()) if "Literal" in str(field.annotation) else ()
    if values:
        return ", ".join(f"`{one}`" for one in values)
    return ", ".join(
        f"{words[name]} {_number(value) if isinstance(value, int) else value}" for name, value in limits.items()
    )
